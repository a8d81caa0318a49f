// SPDX-License-Identifier: GPL-2.0
//! Reads the server name (SNI) and the protocols (ALPN) of a TLS ClientHello. rustls parses the
//! message. This needs no key, no certificate and no cipher.

use rustls::server::Acceptor;

/// Largest size of a ClientHello with its record headers, in bytes.
pub const LONGEST: usize = 32 << 10;

/// What a ClientHello asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    pub server_name: Option<String>,
    pub alpn: Vec<Vec<u8>>,
}

/// What the log tells about a ClientHello. Its size is bounded, however many protocols the client
/// names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub server_name: Option<String>,
    /// The protocols, separated by commas, in printable ASCII.
    pub alpn: String,
}

/// Most bytes of [`Summary::alpn`].
const ALPN_SHOWN: usize = 256;

impl Hello {
    pub fn summary(self) -> Summary {
        const MORE: &str = "...";
        let mut alpn = String::new();
        let names = self.alpn.iter().enumerate();
        for text in names.flat_map(|(i, name)| {
            let comma = (i > 0).then_some(',');
            comma.into_iter().chain(name.escape_ascii().map(char::from))
        }) {
            if alpn.len() == ALPN_SHOWN {
                alpn.truncate(ALPN_SHOWN - MORE.len());
                alpn.push_str(MORE);
                break;
            }
            alpn.push(text);
        }
        Summary {
            server_name: self.server_name,
            alpn,
        }
    }
}

/// Parses a ClientHello piece by piece, however it is cut into records and packets.
#[derive(Default)]
pub struct Reader(Acceptor);

impl Reader {
    /// Takes further bytes. Returns the ClientHello once it is complete.
    ///
    /// # Errors
    /// Returns a message if the bytes are no ClientHello, or if rustls rejects it.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Option<Hello>, String> {
        while !bytes.is_empty() {
            let n = self.0.read_tls(&mut bytes).map_err(|e| e.to_string())?;
            match self.0.accept() {
                Err((e, _alert)) => return Err(e.to_string()),
                Ok(Some(accepted)) => {
                    let hello = accepted.client_hello();
                    return Ok(Some(Hello {
                        server_name: hello.server_name().map(str::to_ascii_lowercase),
                        alpn: hello
                            .alpn()
                            .into_iter()
                            .flatten()
                            .map(<[u8]>::to_vec)
                            .collect(),
                    }));
                }
                Ok(None) if n == 0 => return Err("no room for more of the ClientHello".into()),
                Ok(None) => {}
            }
        }
        Ok(None)
    }
}

/// A server name in the configuration: a host name, or `*.` and a host name. The `*` stands for one
/// or more labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// # Errors
    /// Returns a message if `text` is neither.
    pub fn new(text: &str) -> Result<Self, String> {
        let host = text.strip_prefix("*.").unwrap_or(text);
        if crate::net::is_name(host) {
            Ok(Pattern(text.to_ascii_lowercase()))
        } else {
            Err(format!("'{text}' is no host name, nor '*.' and one"))
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
            None => name == self.0,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &counted(body)].concat()
    }

    fn counted(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u16).to_be_bytes()[..], body].concat()
    }

    /// Returns a ClientHello of TLS 1.2, in records of `cut` bytes.
    pub fn client_hello(name: &str, alpn: &[&str], cut: usize) -> Vec<u8> {
        let names: Vec<u8> = [&[0u8][..], &counted(name.as_bytes())].concat();
        let protocols: Vec<u8> = alpn
            .iter()
            .flat_map(|p| [&[p.len() as u8][..], p.as_bytes()].concat())
            .collect();
        let mut extensions = [
            extension(10, &counted(&[0, 0x1d])),
            extension(13, &counted(&[4, 3])),
        ]
        .concat();
        if !name.is_empty() {
            extensions.extend(extension(0, &counted(&names)));
        }
        if !alpn.is_empty() {
            extensions.extend(extension(16, &counted(&protocols)));
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(counted(&[0xc0, 0x2f]));
        body.extend([1, 0]);
        body.extend(counted(&extensions));
        let length = (body.len() as u32).to_be_bytes();
        let message = [&[1u8][..], &length[1..], &body].concat();
        message
            .chunks(cut.max(1))
            .flat_map(|part| [&[22u8, 3, 1][..], &counted(part)].concat())
            .collect()
    }

    #[test]
    fn name_and_protocols_are_found_wherever_it_is_cut() {
        let expected = Hello {
            server_name: Some("a.example".into()),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        for cut in [1, 7, 50, 1 << 14] {
            let bytes = client_hello("A.example", &["h2", "http/1.1"], cut);
            assert_eq!(
                Reader::default().feed(&bytes),
                Ok(Some(expected.clone())),
                "{cut}"
            );
            let mut reader = Reader::default();
            for (i, byte) in bytes.iter().enumerate() {
                let found = reader.feed(&[*byte]).unwrap();
                assert_eq!(
                    found.is_some(),
                    i + 1 == bytes.len(),
                    "at {i} of {}",
                    bytes.len()
                );
            }
        }
    }

    #[test]
    fn what_is_no_tls_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            &[0; 64],
        ] {
            assert!(Reader::default().feed(bytes).is_err());
        }
    }

    #[test]
    fn a_summary_is_short_and_printable() {
        let hello = |alpn: &[&[u8]]| Hello {
            server_name: Some("a.example".into()),
            alpn: alpn.iter().map(|name| name.to_vec()).collect(),
        };
        let alpn = |names: &[&[u8]]| hello(names).summary().alpn;
        assert_eq!(alpn(&[]), "");
        assert_eq!(alpn(&[b"h2", b"http/1.1"]), "h2,http/1.1");
        assert_eq!(alpn(&[b"\x1b\xff"]), r"\x1b\xff");
        assert_eq!(alpn(&[&[b'a'; 255], b""]).len(), 256);
        let long = alpn(&[&[b'a'; 255], b"b"]);
        assert!(long.len() == 256 && long.ends_with("aa..."), "{long}");
        assert_eq!(alpn(&[&b"\0"[..]; 10_000]).len(), 256);
    }

    #[test]
    fn patterns_match_whole_labels() {
        let pattern = Pattern::new("*.Example.com").unwrap();
        assert!(pattern.matches("a.example.com") && pattern.matches("a.b.example.com"));
        assert!(!pattern.matches("example.com") && !pattern.matches("aexample.com"));
        assert!(Pattern::new("a.b").unwrap().matches("a.b"));
        for text in ["", "*", "*a.b", "a.*.b", "a b"] {
            assert!(Pattern::new(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes: Vec<u8>, hello: bool, at: usize, to: u8) {
            if hello {
                bytes = client_hello("a.example", &["h2"], 60);
                let n = bytes.len();
                bytes[at % n] = to;
            }
            let _ = Reader::default().feed(&bytes);
        }
    }
}

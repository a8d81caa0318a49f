// SPDX-License-Identifier: GPL-2.0
//! Requests to the module's generic-netlink family.

use std::io;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlaBuffer, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

/// `GENL_ID_CTRL` and what is needed of its family to find another one.
const CTRL_ID: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const GENL_HEADER: usize = 4;

/// A generic-netlink message of any family: its attributes stay bytes.
#[derive(Debug)]
struct Message {
    family: u16,
    command: u8,
    version: u8,
    attributes: Vec<u8>,
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        GENL_HEADER + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..GENL_HEADER].copy_from_slice(&[self.command, self.version, 0, 0]);
        buffer[GENL_HEADER..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        if payload.len() < GENL_HEADER {
            return Err("short generic-netlink message".into());
        }
        Ok(Message {
            family: header.message_type,
            command: payload[0],
            version: payload[1],
            attributes: payload[GENL_HEADER..].to_vec(),
        })
    }
}

/// The attributes of one answer, or of a nest in it.
pub struct Attributes(Vec<(u16, Vec<u8>)>);

impl Attributes {
    pub fn parse(bytes: &[u8]) -> io::Result<Self> {
        let parsed: Result<Vec<_>, _> = NlasIterator::new(bytes)
            .map(|attribute: Result<NlaBuffer<&[u8]>, _>| {
                attribute.map(|a| (a.kind(), a.value().to_vec()))
            })
            .collect();
        parsed
            .map(Attributes)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
    }

    pub fn all(&self, kind: u16) -> impl Iterator<Item = &[u8]> {
        let of_kind = self.0.iter().filter(move |a| a.0 == kind);
        of_kind.map(|a| a.1.as_slice())
    }

    pub fn bytes(&self, kind: u16) -> Option<&[u8]> {
        self.all(kind).next()
    }

    pub fn string(&self, kind: u16) -> Option<String> {
        let bytes = self.bytes(kind)?;
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// An unsigned number of whatever width the kernel sent; 0 if it sent none.
    pub fn number(&self, kind: u16) -> u64 {
        match self.bytes(kind) {
            Some(&[a]) => a.into(),
            Some(&[a, b]) => u16::from_ne_bytes([a, b]).into(),
            Some(&[a, b, c, d]) => u32::from_ne_bytes([a, b, c, d]).into(),
            Some(bytes) => bytes.try_into().map_or(0, u64::from_ne_bytes),
            None => 0,
        }
    }

    pub fn flag(&self, kind: u16) -> bool {
        self.number(kind) != 0
    }
}

pub struct Family {
    socket: Socket,
    id: u16,
    version: u8,
}

impl Family {
    /// `ErrorKind::NotFound` if no module registered the name.
    pub fn open(name: &str, version: u8) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;

        let mut family = Family {
            socket,
            id: CTRL_ID,
            version: 1,
        };
        let mut name = name.as_bytes().to_vec();
        name.push(0);
        let answers = family.request(
            CTRL_CMD_GETFAMILY,
            &[DefaultNla::new(CTRL_ATTR_FAMILY_NAME, name)],
        )?;
        let id = answers.first().map_or(0, |a| a.number(CTRL_ATTR_FAMILY_ID));
        family.id = u16::try_from(id).unwrap_or(0);
        family.version = version;
        match family.id {
            0 => Err(io::Error::from(io::ErrorKind::NotFound)),
            _ => Ok(family),
        }
    }

    pub fn request(&self, command: u8, attributes: &[DefaultNla]) -> io::Result<Vec<Attributes>> {
        self.exchange(command, NLM_F_ACK, attributes)
    }

    pub fn dump(&self, command: u8) -> io::Result<Vec<Attributes>> {
        self.exchange(command, NLM_F_DUMP, &[])
    }

    fn exchange(
        &self,
        command: u8,
        flags: u16,
        attributes: &[DefaultNla],
    ) -> io::Result<Vec<Attributes>> {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let message = Message {
            family: self.id,
            command,
            version: self.version,
            attributes: bytes,
        };
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let message = NetlinkMessage::<Message>::deserialize(rest)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
                // Messages start at multiples of four.
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length.max(4)..).unwrap_or(&[]);
                match message.payload {
                    NetlinkPayload::InnerMessage(m) => {
                        answers.push(Attributes::parse(&m.attributes)?)
                    }
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code));
                    }
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        Some(_) => return Err(error.to_io()),
                        // An acknowledgement.
                        None => return Ok(answers),
                    },
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(list: &[DefaultNla]) -> Attributes {
        let mut bytes = vec![0; list.buffer_len()];
        list.emit(&mut bytes);
        Attributes::parse(&bytes).unwrap()
    }

    #[test]
    fn numbers_of_every_width() {
        let a = attributes(&[
            DefaultNla::new(1, vec![7]),
            DefaultNla::new(2, 700u16.to_ne_bytes().to_vec()),
            DefaultNla::new(3, 70_000u32.to_ne_bytes().to_vec()),
            DefaultNla::new(4, (1u64 << 40).to_ne_bytes().to_vec()),
            DefaultNla::new(5, vec![1, 2, 3]),
        ]);
        assert_eq!(a.number(1), 7);
        assert_eq!(a.number(2), 700);
        assert_eq!(a.number(3), 70_000);
        assert_eq!(a.number(4), 1 << 40);
        assert_eq!(a.number(5), 0);
        assert_eq!(a.number(6), 0);
        assert!(a.flag(1) && !a.flag(6));
    }

    #[test]
    fn strings_lose_their_nul() {
        let a = attributes(&[DefaultNla::new(1, b"0.1.0\0".to_vec())]);
        assert_eq!(a.string(1).as_deref(), Some("0.1.0"));
        assert_eq!(a.string(2), None);
    }

    #[test]
    fn nests_and_repeats() {
        let inner = [DefaultNla::new(9, vec![1])];
        let mut bytes = vec![0; inner.as_slice().buffer_len()];
        inner.as_slice().emit(&mut bytes);
        let nested = 0x8000;
        let a = attributes(&[
            DefaultNla::new(1 | nested, bytes.clone()),
            DefaultNla::new(1 | nested, bytes),
        ]);
        let nests: Vec<_> = a.all(1).collect();
        assert_eq!(nests.len(), 2);
        assert_eq!(Attributes::parse(nests[1]).unwrap().number(9), 1);
    }

    #[test]
    fn a_cut_message_is_an_error() {
        assert!(Attributes::parse(&[40, 0, 1, 0, 1]).is_err());
    }

    #[test]
    fn an_unknown_family_is_not_found() {
        // Needs no privilege; the kernel answers ENOENT.
        let error = Family::open("nonexistent_fam", 1).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

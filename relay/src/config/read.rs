// SPDX-License-Identifier: GPL-2.0
//! Turns the tables of the file into a [`Config`].

use std::collections::HashSet;
use std::time::Duration;

use toml::de::DeTable;

use super::section::{Mistake, Mistakes, Section};
use super::units::{duration, size};
use super::{Balance, Check, Config, Front, Listener, Pool, Reach, Route};
use crate::net::{Address, Network};
use crate::transfer::{Mode, Wanted};
use crate::wire::hello::Pattern;
use crate::wire::proxy::Version;
use crate::wire::tlv::Kind;

const SECOND: Duration = Duration::from_secs(1);

pub fn config(text: &str) -> Result<Config, Vec<Mistake>> {
    let mistakes = Mistakes::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for e in &errors {
        let at = e.span().map_or(0, |s| s.start);
        mistakes.add(at, e.message().replace('\n', ", "));
    }
    if !errors.is_empty() {
        return Err(mistakes.into_list());
    }
    let config = whole(&Section::new(table.get_ref(), 0, &mistakes));
    let list = mistakes.into_list();
    if list.is_empty() {
        Ok(config)
    } else {
        Err(list)
    }
}

fn whole(s: &Section) -> Config {
    let sections = s.tables("listener");
    if sections.is_empty() && !s.has("listener") {
        s.mistake("no [[listener]]");
    }
    let listeners: Vec<Listener> = sections.into_iter().map(listener).collect();
    let config = Config {
        log: s.parsed("log_format").unwrap_or_default(),
        admin: s.list("admin", listen_address),
        drain: s.value("drain", duration).unwrap_or(30 * SECOND),
        resolve: s.value("resolve", positive).unwrap_or(30 * SECOND),
        max_connections: count(s, "max_connections"),
        listeners,
    };
    if !config.resolve.is_zero() && config.resolve < SECOND {
        s.mistake_at("resolve", "names are looked up once a second at most");
    }
    let sockets: usize = config.listeners.iter().map(|l| l.listen.len()).sum();
    if sockets > 1 && config.max_connections.is_some_and(|most| most <= sockets) {
        s.mistake_at(
            "max_connections",
            format!(
                "it must be above {sockets}: an address that waits for a client counts as a connection"
            ),
        );
    }
    let mut names = HashSet::new();
    let mut addresses = HashSet::new();
    for l in &config.listeners {
        if !names.insert(&l.name) {
            s.mistake(format!("two listeners have the name '{}'", l.name));
        }
    }
    for a in config
        .listeners
        .iter()
        .flat_map(|l| &l.listen)
        .chain(&config.admin)
    {
        // This holds for port 0 too: a reload and an upgrade know a socket by its address.
        if !addresses.insert(a) {
            s.mistake(format!("two listeners are to listen at {a}"));
        }
    }
    s.leftover();
    config
}

fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("no time at all".into()),
        time => Ok(time),
    }
}

fn positive_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("no bytes at all".into()),
        size => Ok(size),
    }
}

fn listen_address(text: &str) -> Result<Address, String> {
    let address: Address = text.parse()?;
    if address.can_listen() {
        Ok(address)
    } else {
        Err(format!(
            "'{address}' is a name: a relay listens at addresses"
        ))
    }
}

fn target_address(text: &str) -> Result<Address, String> {
    let address: Address = text.parse()?;
    if address.can_connect() {
        Ok(address)
    } else {
        Err(format!("'{address}' cannot be connected to"))
    }
}

fn network(text: &str) -> Result<Network, String> {
    text.parse()
}

fn count(s: &Section, key: &'static str) -> Option<usize> {
    s.number(key, 1, 10_000_000).map(|n| n as usize)
}

fn rate(s: &Section, key: &'static str) -> Option<u64> {
    s.number(key, 1, 10_000_000)
}

fn listener(s: Section) -> Listener {
    let listen = s.list("listen", listen_address);
    if listen.is_empty() && !s.has("listen") {
        s.mistake("a listener without 'listen'");
    }
    let name = s
        .value("name", name)
        .or_else(|| listen.first().map(ToString::to_string));
    let routes: Vec<Route> = s.tables("route").into_iter().map(route).collect();
    let tls = if routes.is_empty() {
        Front::Plain
    } else {
        Front::Tls
    };
    let listener = Listener {
        name: name.unwrap_or_default(),
        mode: s.parsed("mode").unwrap_or_default(),
        front: s.parsed("front").unwrap_or(tls),
        reach: Reach {
            networks: s.list("connect_to", network),
            ports: s.list("connect_ports", port),
        },
        pool: pool(&s),
        routes,
        proxy_in: s.parsed("proxy_in"),
        proxy_from: s.list("proxy_from", network),
        proxy_out: s.value("proxy_out", version_out),
        proxy_tlvs: s.list("proxy_tlvs", kind).into_iter().collect(),
        transparent: s.flag("transparent"),
        connect_timeout: s.value("connect_timeout", positive).unwrap_or(5 * SECOND),
        retries: s.number("retries", 0, 100).unwrap_or(2) as u32,
        header_timeout: s.value("header_timeout", positive).unwrap_or(10 * SECOND),
        idle: s.value("idle", duration).filter(|t| !t.is_zero()),
        max_bytes: s.value("max_bytes", positive_size),
        bandwidth: s.value("bandwidth", positive_size),
        total_bandwidth: s.value("total_bandwidth", positive_size),
        max_connections: count(&s, "max_connections"),
        max_per_source: count(&s, "max_per_source"),
        rate: rate(&s, "rate"),
        rate_per_source: rate(&s, "rate_per_source"),
        allow: s.list("allow", network),
        deny: s.list("deny", network),
        listen,
    };
    agree(&s, &listener);
    s.leftover();
    listener
}

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:[]/*".contains(c);
    if !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        Ok(text.into())
    } else {
        Err(format!(
            "'{text}' is no name (letters, digits, '-', '_', '.', 64 at most)"
        ))
    }
}

fn port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|p| *p != 0);
    port.ok_or_else(|| format!("'{text}' is no port"))
}

fn version_out(text: &str) -> Result<Version, String> {
    match text.parse()? {
        Version::Any => Err("'any' is for proxy_in: v1 or v2 is sent".into()),
        version => Ok(version),
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    text.parse()
}

/// Checks keys that depend on each other.
fn agree(s: &Section, l: &Listener) {
    let forwards = matches!(l.front, Front::Plain | Front::Tls);
    if l.front == Front::Plain && !s.has("to") && l.routes.is_empty() {
        s.mistake("a listener without 'to'");
    }
    if l.front == Front::Tls && !s.has("to") && !s.has("route") {
        s.mistake("a listener without 'to' and without a [[listener.route]]");
    }
    if l.front != Front::Tls && !l.routes.is_empty() {
        s.mistake_at("front", "routes go by SNI and ALPN: it must be tls");
    }
    if !forwards {
        if s.has("to") {
            s.mistake_at("to", "the clients of this front end say where to");
        }
        if l.reach.networks.is_empty() && !s.has("connect_to") {
            s.mistake(
                "a proxy for clients' destinations without 'connect_to' would be an open one",
            );
        }
    }
    for key in ["connect_to", "connect_ports"] {
        if forwards && s.has(key) {
            s.mistake_at(key, "it is for the front ends connect and socks5");
        }
    }
    if s.has("proxy_tlvs") && l.proxy_out != Some(Version::V2) {
        s.mistake_at("proxy_tlvs", "it goes with proxy_out = 'v2'");
    }
    if l.transparent && l.proxy_in.is_some() && l.proxy_from.is_empty() {
        s.mistake_at(
            "transparent",
            "with proxy_in it wants proxy_from, or any client could choose its address",
        );
    }
    if s.has("proxy_from") && !s.has("proxy_in") {
        s.mistake_at("proxy_from", "it goes with proxy_in");
    }
    let unix = |a: &Address| matches!(a, Address::Unix(_));
    let listens = l.listen.iter().any(unix);
    let connects = l.pools().flat_map(|p| &p.to).any(unix);
    // proxy_in does not change that: no client of a Unix socket is in a network of proxy_from.
    if l.transparent && listens {
        s.mistake_at(
            "transparent",
            "clients at a Unix socket have no address: give that socket another listener",
        );
    } else if listens && !l.proxy_from.is_empty() {
        s.mistake_at(
            "proxy_from",
            "no client of a Unix socket is in a network: give that socket another listener",
        );
    }
    if l.transparent && connects {
        s.mistake_at(
            "transparent",
            "targets at a Unix socket see no address: give them another listener",
        );
    }
    let has_unix = listens || connects;
    if let Wanted::Only(mode @ (Mode::Sosplice | Mode::Pipe)) = l.mode {
        if has_unix {
            s.mistake_at(
                "mode",
                format!("Unix sockets are copied, so it cannot be {mode}"),
            );
        }
    }
}

fn route(s: Section) -> Route {
    let sni = s.list("sni", Pattern::new);
    let alpn = s.list("alpn", |text| match text.len() {
        1..=255 => Ok(text.to_string()),
        _ => Err(format!("'{text}' is no protocol's name")),
    });
    if !s.has("sni") && !s.has("alpn") {
        s.mistake("a route without 'sni' and without 'alpn'");
    }
    let pool = pool(&s);
    if pool.is_none() {
        s.mistake("a route without 'to'");
    }
    s.leftover();
    let pool = pool.unwrap_or_else(|| Pool::to(Vec::new()));
    Route { sni, alpn, pool }
}

impl Pool {
    fn to(to: Vec<Address>) -> Pool {
        Pool {
            to,
            balance: Balance::default(),
            fall: 3,
            rise: 2,
            back_off: (SECOND, 60 * SECOND),
            check: None,
        }
    }
}

fn pool(s: &Section) -> Option<Pool> {
    let to = s.list("to", target_address);
    let mut pool = Pool::to(to);
    pool.balance = s.parsed("balance").unwrap_or_default();
    if let Some(h) = s.table("health") {
        health(h, &mut pool);
    }
    if s.is_empty_list("to") {
        s.mistake_at("to", "no target");
    }
    let mut seen = HashSet::new();
    for a in &pool.to {
        if !seen.insert(a) {
            s.mistake_at("to", format!("{a} is there twice"));
        }
    }
    s.has("to").then_some(pool)
}

fn health(s: Section, pool: &mut Pool) {
    let bytes = |text: &str| Ok(text.as_bytes().to_vec());
    pool.fall = s.number("fall", 1, 1000).map_or(pool.fall, |n| n as u32);
    pool.rise = s.number("rise", 1, 1000).map_or(pool.rise, |n| n as u32);
    let (first, most) = pool.back_off;
    let first = s.value("back_off", positive).unwrap_or(first);
    let most = s.value("back_off_max", positive).unwrap_or(most.max(first));
    pool.back_off = (first, most);
    if most < first {
        s.mistake_at("back_off_max", "it is below back_off");
    }
    let interval = s.value("interval", positive);
    let timeout = s.value("timeout", positive);
    let send = s.value("send", bytes);
    let expect = s.value("expect", bytes);
    match interval {
        Some(interval) => {
            pool.check = Some(Check {
                interval,
                timeout: timeout.unwrap_or(interval.min(2 * SECOND)),
                send,
                expect,
            });
        }
        None if s.has("interval") => {}
        None => {
            for key in ["timeout", "send", "expect", "rise"] {
                if s.has(key) {
                    s.mistake_at(key, "it is for active checks, which want 'interval'");
                }
            }
        }
    }
    s.leftover();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_has_defaults() {
        let config =
            config("[[listener]]\nlisten = '127.0.0.1:80'\nto = ['a:1', 'unix:/b']\n").unwrap();
        let l = &config.listeners[0];
        assert_eq!(l.name, "127.0.0.1:80");
        assert_eq!(
            (l.mode, l.front, l.retries),
            (Wanted::Auto, Front::Plain, 2)
        );
        assert_eq!(l.pool.as_ref().unwrap().to.len(), 2);
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let text = "log_format = 'xml'\n\
            max-connections = 5\n\
            [[listener]]\n\
            listen = ['127.0.0.1:80', 'host:80']\n\
            to = 'nowhere'\n\
            idle = '5 parsecs'\n\
            max_per_source = 0\n\
            proxy_out = 'any'\n\
            [[listener]]\n\
            listen = '127.0.0.1:80'\n\
            front = 'socks5'\n\
            mode = true\n\
            proxy_in = 'v2'\n\
            proxy_tlvs = ['alpn', 'sni']\n\
            transparent = true\n\
            [listener.health]\n\
            rise = 3\n";
        let mistakes = config(text).unwrap_err();
        let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        for expected in [
            "line 1: log_format",
            "line 2: unknown key 'max-connections' (is it 'max_connections'?)",
            "line 4: listen",
            "line 5: to",
            "line 6: idle",
            "line 7: max_per_source",
            "line 8: proxy_out",
            "line 9: a proxy for clients'",
            "line 12: mode",
            "line 14: proxy_tlvs: 'sni' is no TLV",
            "line 14: proxy_tlvs: it goes with proxy_out",
            "line 15: transparent: with proxy_in it wants proxy_from",
            "line 17: rise",
        ] {
            assert!(
                said.iter().any(|s| s.starts_with(expected)),
                "{expected}: {said:#?}"
            );
        }
        assert!(
            said.iter()
                .any(|s| s.contains("two listeners are to listen at 127.0.0.1:80"))
        );
        assert!(!said.iter().any(|s| s.contains("no target")), "{said:#?}");
    }

    #[test]
    fn no_unix_socket_is_transparent() {
        let with = |listen: &str, to: &str, more: &str| {
            config(&format!(
                "[[listener]]\nlisten = [{listen}]\nto = [{to}]\ntransparent = true\n{more}"
            ))
        };
        let (tcp, unix, both) = ("'127.0.0.1:80'", "'unix:/a'", "'127.0.0.1:81', 'unix:/b'");
        let header = "proxy_in = 'v2'\nproxy_from = '10.0.0.0/8'\n";
        let route = "[[listener.route]]\nalpn = 'h2'\nto = 'unix:/c'\n";
        for (listen, to, more, why) in [
            (unix, tcp, "", "clients"),
            (both, tcp, "", "clients"),
            (unix, tcp, header, "clients"),
            (tcp, unix, "", "targets"),
            (tcp, both, header, "targets"),
            (tcp, tcp, route, "targets"),
        ] {
            let said = with(listen, to, more).unwrap_err();
            let expected = format!("transparent: {why} at a Unix socket");
            assert!(
                said.len() == 1 && said[0].line == Some(4) && said[0].what.starts_with(&expected),
                "{said:?}"
            );
        }
        assert!(with(tcp, "'127.0.0.1:81'", "").is_ok());
    }

    #[test]
    fn no_client_of_a_unix_socket_is_in_a_network() {
        let with = |listen: &str| {
            config(&format!(
                "[[listener]]\nlisten = [{listen}]\nto = 'a:1'\nproxy_in = 'v2'\nproxy_from = '10.0.0.0/8'\n"
            ))
        };
        assert!(with("'127.0.0.1:80'").is_ok());
        for listen in ["'unix:/a'", "'127.0.0.1:80', 'unix:/a'"] {
            let said = with(listen).unwrap_err();
            assert!(
                said[0].line == Some(5) && said[0].what.starts_with("proxy_from: no client"),
                "{said:?}"
            );
        }
    }

    #[test]
    fn an_address_has_one_listener() {
        let one = |name: &str, listen: &str| {
            format!("[[listener]]\nname = '{name}'\nlisten = [{listen}]\nto = 'a:1'\n")
        };
        for address in ["127.0.0.1:80", "127.0.0.1:0", "*:0", "unix:/run/x"] {
            let listen = format!("'{address}'");
            for text in [
                one("a", &listen) + &one("b", &listen),
                one("a", &format!("{listen}, {listen}")),
                format!("admin = {listen}\n{}", one("a", &listen)),
            ] {
                let said = config(&text).unwrap_err();
                let expected = format!("two listeners are to listen at {address}");
                assert!(said.iter().any(|m| m.what == expected), "{said:?}");
            }
        }
        assert!(config(&(one("a", "'127.0.0.1:0'") + &one("b", "'127.0.0.2:0'"))).is_ok());
    }

    #[test]
    fn the_whole_limit_has_room_for_all_addresses() {
        let with = |most: usize, listen: &str| {
            config(&format!(
                "max_connections = {most}\n[[listener]]\nlisten = [{listen}]\nto = 'a:1'\n"
            ))
        };
        let two = "'127.0.0.1:80', '[::1]:80'";
        assert!(with(1, "'127.0.0.1:80'").is_ok() && with(3, two).is_ok());
        let said = with(2, two).unwrap_err();
        assert!(
            said[0].line == Some(1) && said[0].what.contains("it must be above 2"),
            "{said:?}"
        );
    }

    #[test]
    fn syntax_errors_have_lines_too() {
        let mistakes = config("a = \n\n[[listener\n").unwrap_err();
        assert_eq!(
            mistakes.first().and_then(|m| m.line),
            Some(1),
            "{mistakes:?}"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = config(&text);
        }
    }
}

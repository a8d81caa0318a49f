// SPDX-License-Identifier: GPL-2.0
//! Requests to the module's generic-netlink family, and the messages of its multicast group.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlaBuffer, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// `GENL_ID_CTRL`, and the numbers of its family that look another family up.
const CTRL_ID: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

const GENL_HEADER: usize = 4;

/// How often a dump is requested if something changes while it is sent.
const DUMPS: usize = 8;

/// A generic-netlink message of any family: its attributes stay bytes.
#[derive(Clone, Debug)]
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
    /// The port that the kernel gave the socket: its answers name it.
    port: u32,
    /// The sequence number of the last request: its answers name it, too.
    seq: Cell<u32>,
    id: u16,
    version: u8,
    /// Multicast groups, by name.
    groups: Vec<(String, u32)>,
}

impl Family {
    /// `ErrorKind::NotFound` if no module registered the name.
    pub fn open(name: &str, version: u8) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;

        let mut family = Family {
            socket,
            port,
            seq: Cell::new(0),
            id: CTRL_ID,
            version: 1,
            groups: Vec::new(),
        };
        family.resolve(name)?;
        family.version = version;
        Ok(family)
    }

    /// Asks for the number that the name has now.
    pub fn resolve(&mut self, name: &str) -> io::Result<()> {
        let answer = self.look_up(name)?;
        match u16::try_from(answer.number(CTRL_ATTR_FAMILY_ID)) {
            Ok(id) if id != 0 => self.id = id,
            _ => return Err(io::Error::from(io::ErrorKind::NotFound)),
        }
        self.groups = groups(&answer)?;
        Ok(())
    }

    /// Whether the name still has the number that it had.
    pub fn is_current(&self, name: &str) -> bool {
        self.look_up(name).is_ok_and(|answer| {
            answer.number(CTRL_ATTR_FAMILY_ID) == u64::from(self.id)
                && groups(&answer).is_ok_and(|groups| groups == self.groups)
        })
    }

    fn look_up(&self, name: &str) -> io::Result<Attributes> {
        let mut name = name.as_bytes().to_vec();
        name.push(0);
        let name = [DefaultNla::new(CTRL_ATTR_FAMILY_NAME, name)];
        let answers = self.exchange_with(CTRL_ID, 1, CTRL_CMD_GETFAMILY, NLM_F_ACK, &name)?;
        let answer = answers.into_iter().next();
        answer.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Joins a multicast group, with a receive buffer of so many bytes.
    pub fn listen(&self, group: &str, buffer: usize) -> io::Result<Listener> {
        let group = self.groups.iter().find(|g| g.0 == group);
        let Some(group) = group.map(|g| g.1) else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        // The kernel doubles it for its own needs.
        set_socket_recv_buffer_size_force(&socket, buffer)?;
        // Losses are seen from the numbers of the messages.
        socket.set_no_enobufs(true)?;
        socket.add_membership(group)?;
        Ok(Listener { socket })
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
        self.exchange_with(self.id, self.version, command, flags, attributes)
    }

    /// A dump that something changed on its way is asked for again.
    fn exchange_with(
        &self,
        family: u16,
        version: u8,
        command: u8,
        flags: u16,
        attributes: &[DefaultNla],
    ) -> io::Result<Vec<Attributes>> {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        let message = Message {
            family,
            command,
            version,
            attributes: bytes,
        };
        for _ in 0..DUMPS {
            let (answers, whole) = self.exchange_once(flags, &message)?;
            if whole {
                return Ok(answers);
            }
        }
        Err(io::Error::from(Errno::AGAIN))
    }

    /// The answers to one request, and whether they are of one moment.
    fn exchange_once(&self, flags: u16, message: &Message) -> io::Result<(Vec<Attributes>, bool)> {
        self.seq.set(self.seq.get().wrapping_add(1));
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.seq.get();
        header.port_number = self.port;
        let mut request =
            NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message.clone()));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        uninterrupted(|| self.socket.send(&bytes, 0))?;

        let mut answers = Answers::to(self.port, self.seq.get());
        loop {
            let (datagram, sender) = uninterrupted(|| self.socket.recv_from_full())?;
            // Only the kernel is believed.
            if sender.port_number() == 0 && answers.take(&datagram)? {
                return Ok((answers.list, answers.whole));
            }
        }
    }
}

pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The answers to one request. Answers to an earlier request may arrive, too, if that one
/// failed before its last answer was read.
struct Answers {
    port: u32,
    seq: u32,
    list: Vec<Attributes>,
    /// Nothing was added or removed between two of them.
    whole: bool,
}

impl Answers {
    fn to(port: u32, seq: u32) -> Self {
        Answers {
            port,
            seq,
            list: Vec::new(),
            whole: true,
        }
    }

    /// True if nothing more is to come.
    fn take(&mut self, datagram: &[u8]) -> io::Result<bool> {
        for message in messages(datagram)? {
            let header = &message.header;
            if header.sequence_number != self.seq || header.port_number != self.port {
                continue;
            }
            self.whole &= header.flags & NLM_F_DUMP_INTR == 0;
            match message.payload {
                NetlinkPayload::InnerMessage(m) => {
                    self.list.push(Attributes::parse(&m.attributes)?);
                }
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(io::Error::from_raw_os_error(-done.code));
                }
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => match error.code {
                    Some(_) => return Err(error.to_io()),
                    // An acknowledgement.
                    None => return Ok(true),
                },
                // The kernel had no room for some of them.
                NetlinkPayload::Overrun(_) => return Err(io::Error::from(Errno::NOBUFS)),
                _ => {}
            }
        }
        Ok(false)
    }
}

/// The messages of one datagram.
fn messages(datagram: &[u8]) -> io::Result<Vec<NetlinkMessage<Message>>> {
    let mut messages = Vec::new();
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<Message>::deserialize(rest)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        // Messages start at multiples of four.
        let length = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(length.max(4)..).unwrap_or(&[]);
        messages.push(message);
    }
    Ok(messages)
}

fn groups(family: &Attributes) -> io::Result<Vec<(String, u32)>> {
    let mut groups = Vec::new();
    for list in family.all(CTRL_ATTR_MCAST_GROUPS) {
        // An array: the kinds of its elements are their places.
        for (_, element) in &Attributes::parse(list)?.0 {
            let group = Attributes::parse(element)?;
            let name = group.string(CTRL_ATTR_MCAST_GRP_NAME).unwrap_or_default();
            groups.push((name, group.number(CTRL_ATTR_MCAST_GRP_ID) as u32));
        }
    }
    Ok(groups)
}

/// Receives the messages of a multicast group.
pub struct Listener {
    socket: Socket,
}

impl Listener {
    /// The next messages; none if that takes longer than `timeout`.
    pub fn receive(&self, timeout: Duration) -> io::Result<Vec<Attributes>> {
        let timeout = Timespec::try_from(timeout).expect("a time of seconds");
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut sockets, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            ready => ready?,
        };
        let (datagram, sender) = uninterrupted(|| self.socket.recv_from_full())?;
        // Only the kernel is believed.
        if sender.port_number() != 0 {
            return Ok(Vec::new());
        }
        let messages = messages(&datagram)?.into_iter();
        messages
            .filter_map(|message| match message.payload {
                NetlinkPayload::InnerMessage(m) => Some(Attributes::parse(&m.attributes)),
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroI32;
    use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
    use std::os::unix::net::UnixDatagram;

    use netlink_packet_core::{DoneMessage, ErrorMessage};

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

    const SEQ: u32 = 7;
    const PORT: u32 = 4711;

    fn packet(seq: u32, port: u32, flags: u16, payload: NetlinkPayload<Message>) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.sequence_number = seq;
        header.port_number = port;
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    fn value(seq: u32, n: u8) -> Vec<u8> {
        let list = [DefaultNla::new(1, vec![n])];
        let mut attributes = vec![0; list.as_slice().buffer_len()];
        list.as_slice().emit(&mut attributes);
        let message = Message {
            family: 99,
            command: 1,
            version: 1,
            attributes,
        };
        packet(seq, PORT, 0, NetlinkPayload::InnerMessage(message))
    }

    fn error(seq: u32, errno: i32) -> Vec<u8> {
        let mut error = ErrorMessage::default();
        error.code = NonZeroI32::new(-errno);
        error.header = vec![0; 16];
        packet(seq, PORT, 0, NetlinkPayload::Error(error))
    }

    fn done(seq: u32, flags: u16) -> Vec<u8> {
        packet(
            seq,
            PORT,
            flags,
            NetlinkPayload::Done(DoneMessage::default()),
        )
    }

    #[test]
    fn answers_to_another_request_are_left_out() {
        let mut answers = Answers::to(PORT, SEQ);
        assert!(!answers.take(&value(SEQ - 1, 1)).unwrap());
        assert!(!answers.take(&error(SEQ - 1, 0)).unwrap());
        assert!(!answers.take(&error(SEQ - 1, 2)).unwrap());
        assert!(!answers.take(&done(SEQ - 1, 0)).unwrap());
        let foreign = packet(
            SEQ,
            PORT + 1,
            0,
            NetlinkPayload::Done(DoneMessage::default()),
        );
        assert!(!answers.take(&foreign).unwrap());
        assert!(!answers.take(&value(SEQ, 2)).unwrap());
        assert!(answers.take(&error(SEQ, 0)).unwrap());
        let numbers: Vec<u64> = answers.list.iter().map(|a| a.number(1)).collect();
        assert_eq!(numbers, [2]);
        assert!(answers.whole);
    }

    #[test]
    fn the_end_of_answers() {
        let take = |bytes: &[u8]| Answers::to(PORT, SEQ).take(bytes);
        assert!(take(&done(SEQ, 0)).unwrap());
        let both = [value(SEQ, 1), done(SEQ, 0)].concat();
        assert!(take(&both).unwrap());
        assert_eq!(take(&error(SEQ, 1)).unwrap_err().raw_os_error(), Some(1));
        let overrun = packet(SEQ, PORT, 0, NetlinkPayload::Overrun(vec![0; 4]));
        let lost = take(&overrun).unwrap_err().raw_os_error();
        assert_eq!(lost, Some(Errno::NOBUFS.raw_os_error()));
        let mut changed = Answers::to(PORT, SEQ);
        assert!(changed.take(&done(SEQ, NLM_F_DUMP_INTR)).unwrap() && !changed.whole);
    }

    /// A family whose next request is number `SEQ`, and the socket that stands for the kernel.
    fn family() -> (Family, UnixDatagram) {
        let (ours, kernel) = UnixDatagram::pair().unwrap();
        // SAFETY: the descriptor is the socket's alone.
        let socket = unsafe { Socket::from_raw_fd(OwnedFd::from(ours).into_raw_fd()) };
        let family = Family {
            socket,
            port: PORT,
            seq: Cell::new(SEQ - 1),
            id: 99,
            version: 1,
            groups: Vec::new(),
        };
        (family, kernel)
    }

    /// In the place of the kernel: the answers that an earlier request left stand first.
    #[test]
    fn a_stale_answer_is_not_this_ones() {
        let (family, kernel) = family();
        for stale in [value(SEQ - 1, 1), error(SEQ - 1, 0), error(SEQ - 1, 13)] {
            kernel.send(&stale).unwrap();
        }
        kernel.send(&value(SEQ, 2)).unwrap();
        kernel.send(&error(SEQ, 0)).unwrap();
        let answers = family.request(1, &[]).unwrap();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].number(1), 2);
        let mut request = [0; 64];
        let length = kernel.recv(&mut request).unwrap();
        let request = &messages(&request[..length]).unwrap()[0].header;
        assert_eq!((request.sequence_number, request.port_number), (SEQ, PORT));
    }

    /// A dump that was changed on its way is asked for again, a few times.
    #[test]
    fn a_changed_dump_is_repeated() {
        let (family, kernel) = family();
        kernel.send(&value(SEQ, 1)).unwrap();
        kernel.send(&done(SEQ, NLM_F_DUMP_INTR)).unwrap();
        kernel.send(&value(SEQ + 1, 2)).unwrap();
        kernel.send(&done(SEQ + 1, 0)).unwrap();
        let answers = family.dump(1).unwrap();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].number(1), 2);
        for seq in 0..DUMPS as u32 {
            kernel.send(&done(SEQ + 2 + seq, NLM_F_DUMP_INTR)).unwrap();
        }
        let error = family.dump(1).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
    }

    #[test]
    fn an_unknown_family_is_not_found() {
        // Needs no privilege; the kernel answers ENOENT.
        let error = Family::open("nonexistent_fam", 1).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

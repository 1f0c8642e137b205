use super::message::header;
use super::*;
use netlink_sys::protocols::NETLINK_ROUTE;

const NUMBER: u32 = 7;

const ACK_TLVS: u16 = netlink_packet_core::NLM_F_ACK_TLVS;

fn message(kind: u16, flags: u16, number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = header(kind, flags, number, body.len()).to_vec();
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn done(code: i32) -> Vec<u8> {
    message(NLMSG_DONE, NLM_F_MULTIPART, NUMBER, &code.to_ne_bytes())
}

/// An object whose body is one byte.
fn object(flags: u16, number: u32, value: u8) -> Vec<u8> {
    message(24, flags, number, &[value])
}

/// Takes each datagram; returns after which one the answer was complete, and the answer.
fn take(flags: u16, datagrams: &[Vec<u8>]) -> io::Result<(usize, Option<Vec<u8>>)> {
    let mut read = |message: &KernelMessage<'_>| match message.body {
        [0] => Err(io::Error::other("zero")),
        [value] => Ok(*value),
        _ => panic!("one byte was sent"),
    };
    let mut answer = PendingAnswer::new(NUMBER, flags);
    for (index, datagram) in datagrams.iter().enumerate() {
        if answer.take(messages(datagram), &mut read)? {
            return Ok((index, answer.into_values()?));
        }
    }
    Err(io::Error::other("no end"))
}

#[test]
fn several_messages_of_one_datagram_are_separated_and_a_cut_one_ends_it() {
    let mut bytes = [
        message(24, 0, 1, &[1, 2, 3]),
        message(20, 0, 1, &[4]),
        message(32, 0, 1, &[9; 40])[..20].to_vec(),
    ]
    .concat();
    let mut read = messages(&bytes);
    let seen: Vec<_> = read.by_ref().map(|one| (one.kind, one.body)).collect();
    assert_eq!(seen, [(24, &[1, 2, 3][..]), (20, &[4])]);
    assert!(!read.is_empty());
    bytes.truncate(40);
    let mut read = messages(&bytes);
    assert_eq!(read.by_ref().count(), 2);
    assert!(read.is_empty());
}

#[test]
fn a_list_ends_with_its_last_message_and_a_single_answer_with_the_first() {
    let list = [
        [
            object(NLM_F_MULTIPART, NUMBER, 1),
            object(NLM_F_MULTIPART, 6, 9),
        ]
        .concat(),
        object(NLM_F_MULTIPART, NUMBER, 2),
        done(0),
        done(0),
    ];
    assert_eq!(take(NLM_F_DUMP, &list).unwrap(), (2, Some(vec![1, 2])));
    let acknowledged = [
        object(0, NUMBER, 1),
        message(NLMSG_ERROR, 0, NUMBER, &[0; 20]),
    ];
    assert_eq!(take(NLM_F_ACK, &acknowledged).unwrap(), (1, Some(vec![1])));
    assert_eq!(take(0, &acknowledged).unwrap(), (0, Some(vec![1])));
}

#[test]
fn a_list_that_changed_meanwhile_is_not_used() {
    let changed = object(NLM_F_MULTIPART | NLM_F_DUMP_INTR, NUMBER, 1);
    assert_eq!(take(NLM_F_DUMP, &[changed, done(0)]).unwrap(), (1, None));
    let end = message(NLMSG_DONE, NLM_F_DUMP_INTR, NUMBER, &[0; 4]);
    let list = [object(NLM_F_MULTIPART, NUMBER, 1), end];
    assert_eq!(take(NLM_F_DUMP, &list).unwrap(), (1, None));
}

#[test]
fn errors_of_the_kernel_and_of_reading_are_reported_once_all_has_arrived() {
    let refused = message(NLMSG_ERROR, 0, NUMBER, &(-libc::EPERM).to_ne_bytes());
    let error = take(NLM_F_ACK, &[refused]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    let error = take(NLM_F_DUMP, &[done(-libc::ENOENT)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let unread = [
        object(NLM_F_MULTIPART, NUMBER, 0),
        object(NLM_F_MULTIPART, NUMBER, 1),
    ];
    let error = take(NLM_F_DUMP, &unread).unwrap_err();
    assert_eq!(error.to_string(), "no end");
    let error = take(NLM_F_DUMP, &[&unread[..], &[done(0)]].concat()).unwrap_err();
    assert_eq!(error.to_string(), "zero");
}

#[test]
fn the_kernels_own_words_are_found_behind_the_requests_header() {
    let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
    body.extend([0; 16]);
    body.extend([8, 0, 2, 0, 1, 2, 3, 4]);
    body.extend([11, 0, 1, 0]);
    body.extend(b"no way\0\0");
    let outcome = |kind, flags, body: &[u8]| {
        let bytes = message(kind, flags, NUMBER, body);
        messages(&bytes).next().unwrap().outcome()
    };
    let refused = outcome(NLMSG_ERROR, ACK_TLVS, &body).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(refused.text.as_deref(), Some("no way"));
    assert_eq!(outcome(NLMSG_ERROR, 0, &body).unwrap_err().text, None);
    let at_the_end = [&body[..4], &body[20..]].concat();
    let refused = outcome(NLMSG_DONE, ACK_TLVS, &at_the_end).unwrap_err();
    assert_eq!(refused.text.as_deref(), Some("no way"));
    assert!(outcome(NLMSG_ERROR, ACK_TLVS, &[0; 3]).is_err());
    assert!(outcome(NLMSG_DONE, ACK_TLVS, &[]).is_ok());
}

#[test]
fn answers_cut_anywhere_are_errors() {
    let whole = message(NLMSG_ERROR, ACK_TLVS, NUMBER, &[0; 20]);
    for len in 1..whole.len() {
        let error = take(NLM_F_ACK, &[whole[..len].to_vec()]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{len}");
    }
    assert!(take(NLM_F_ACK, &[whole]).is_ok());
}

#[test]
fn after_an_answer_that_cannot_be_read_the_next_request_is_answered() {
    const RTM_GETROUTE: u16 = 26;
    let Ok(mut socket) = NetlinkSocket::open(NETLINK_ROUTE) else {
        return;
    };
    // `struct rtmsg` for any family: the list of all routes comes in several datagrams.
    for _ in 0..3 {
        let refuse = |_: &KernelMessage<'_>| Err::<(), _>(io::Error::other("unread"));
        let refused = socket.exchange(RTM_GETROUTE, NLM_F_DUMP, &[0; 12], refuse);
        let lens = |message: &KernelMessage<'_>| Ok::<_, io::Error>(message.body.len());
        let read = socket.exchange(RTM_GETROUTE, NLM_F_DUMP, &[0; 12], lens);
        assert_eq!(refused.is_err(), !read.unwrap().is_empty());
    }
}

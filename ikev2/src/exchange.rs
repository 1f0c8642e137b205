//! The exchanges of an IKE SA: what is done with each request, response and finished work.
//!
//! ```text
//!   init            IKE_SA_INIT, both roles: algorithms, key exchange, NAT     init::initiator, init::responder
//!   auth            IKE_AUTH, both roles: identities, proofs, the first child  auth::initiator, auth::responder
//!   child           CREATE_CHILD_SA: child SAs
//!   rekey           CREATE_CHILD_SA: an IKE SA in the place of another
//!   collision       both ends have rekeyed the same SA
//!   informational   INFORMATIONAL: deletes, liveness, errors
//! ```
//!
//! A function here gets the IKE SA and a [`Context`]; it sends, starts work and changes the state. It never waits.

use crate::{
    endpoint::{Action, ChildId, Event, Settings, peers::Peers},
    groups::Random,
    ike_sa::{Current, IkeSa, State},
    message::{ExchangeType, Header, IkeSpi, Payload, payload::NotifyType},
    work::{Output, Work, WorkError, WorkId},
};
use std::{collections::HashMap, time::Duration};

pub(crate) mod auth;
pub(crate) mod child;
pub(crate) mod collision;
pub(crate) mod informational;
pub(crate) mod init;
pub(crate) mod rekey;

/// What a function of an exchange has at hand besides the IKE SA.
pub(crate) struct Context<'a> {
    pub now: Duration,
    pub random: Random<'a>,
    pub shared: &'a mut Shared,
}

/// What all IKE SAs of an endpoint share, apart from each other.
pub(crate) struct Shared {
    pub settings: Settings,
    pub actions: Vec<Action>,
    /// Which IKE SA (by the own SPI) waits for which work, and what for.
    pub works: HashMap<WorkId, (IkeSpi, Purpose)>,
    pub next_work: u64,
    pub next_child: u64,
    /// Which IKE SA (by the own SPI) a child SA belongs to.
    pub owners: HashMap<ChildId, IkeSpi>,
    /// What IKE SAs have the endpoint do with others.
    pub orders: Vec<Order>,
    pub peers: Peers,
}

/// What an IKE SA has the endpoint do behind its back.
pub(crate) enum Order {
    /// A new IKE SA that has replaced the one that made it.
    Adopt(Box<IkeSa>),
    /// The IKE SA with this own SPI goes on with the children of the one that it replaces.
    Inherit(IkeSpi, Box<rekey::Inherited>),
    /// The IKE SA with this own SPI was made in vain: it is deleted.
    CloseRedundant(IkeSpi),
    /// INITIAL_CONTACT: other IKE SAs of this connection and identity go, if they were up before this moment.
    ReplaceOthers {
        keep: IkeSpi,
        connection: String,
        identity: String,
        before: Duration,
    },
    /// This IKE SA is up: redundant ones of the same connection and identity are looked for.
    Established { own: IkeSpi },
}

/// What a work is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A key pair for IKE_SA_INIT.
    Begin,
    /// The keys of the IKE SA.
    Keys,
    /// The own AUTH payload.
    Prove,
    /// The peer's AUTH payload.
    Check,
    /// The keys of the first child SA.
    FirstChild,
    /// A work of CREATE_CHILD_SA: its number is the exchange's own.
    Create(u32),
    /// Nothing waits for it.
    Forget,
}

impl Context<'_> {
    /// Starts a work; its result comes to [`done`].
    pub fn work(&mut self, own: IkeSpi, purpose: Purpose, work: Work) {
        let id = WorkId(self.shared.next_work);
        self.shared.next_work += 1;
        if purpose != Purpose::Forget {
            self.shared.works.insert(id, (own, purpose));
        }
        self.shared.actions.push(Action::Work(id, work));
    }

    pub fn act(&mut self, action: Action) {
        self.shared.actions.push(action);
    }

    pub fn event(&mut self, event: Event) {
        self.act(Action::Event(event));
    }

    pub fn child_id(&mut self) -> ChildId {
        let id = ChildId(self.shared.next_child);
        self.shared.next_child += 1;
        id
    }

    pub fn random_bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }

    /// An SPI for packets that arrive: 1 to 255 are reserved (RFC 4303 2.1), and 0 is none.
    pub fn child_spi(&mut self) -> u32 {
        loop {
            let spi = u32::from_be_bytes(self.random_bytes());
            if spi > 255 {
                return spi;
            }
        }
    }
}

impl Shared {
    pub fn new(settings: Settings) -> Self {
        Self {
            actions: Vec::new(),
            works: HashMap::new(),
            next_work: 1,
            next_child: settings.first_child,
            owners: HashMap::new(),
            orders: Vec::new(),
            peers: Peers::default(),
            settings,
        }
    }
}

pub(crate) use auth::first_child::installed as first_child_installed;

/// A nonce of 32 bytes: at least 128 bits and half the key of any pseudorandom function here (RFC 7296 2.10).
pub(crate) const NONCE_BYTES: usize = 32;

/// A work of this IKE SA has finished.
pub(crate) fn done(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    purpose: Purpose,
    result: Result<Output, WorkError>,
) {
    match purpose {
        Purpose::Begin => init::initiator::begun(sa, cx, result),
        Purpose::Keys => init::keys(sa, cx, result),
        Purpose::Prove => auth::proven(sa, cx, result),
        Purpose::Check => auth::checked(sa, cx, result),
        Purpose::FirstChild => auth::first_child::keys(sa, cx, result),
        Purpose::Create(number) => child::done(sa, cx, number, result),
        Purpose::Forget => {}
    }
}

/// An authentic request has come for the first time.
pub(crate) fn request(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    header: &Header,
    payloads: &[Payload<'_>],
) {
    let id = header.message_id;
    child::request_came(sa, id);
    match (header.exchange, &sa.state) {
        (ExchangeType::IKE_AUTH, State::Authenticating) if !sa.is_initiator => {
            auth::responder::request(sa, cx, id, payloads);
        }
        (ExchangeType::CREATE_CHILD_SA, State::Established(_) | State::Closing(_)) => {
            child::request(sa, cx, id, payloads);
        }
        (ExchangeType::INFORMATIONAL, State::Established(_) | State::Closing(_)) => {
            informational::request(sa, cx, id, payloads);
        }
        // RFC 7296 2.21.3: a request that makes no sense here gets an error, and nothing else happens.
        _ => sa.respond_notify(cx, id, header.exchange, NotifyType::InvalidSyntax, &[]),
    }
}

/// The authentic response to the request that waits for one.
pub(crate) fn response(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    header: &Header,
    payloads: &[Payload<'_>],
) {
    let current = sa.current.take();
    match (current, header.exchange) {
        (Some(Current::Auth), ExchangeType::IKE_AUTH) => {
            auth::initiator::response(sa, cx, payloads);
        }
        (Some(Current::Informational(about)), ExchangeType::INFORMATIONAL) => {
            informational::response(sa, cx, about, payloads);
        }
        (Some(Current::Create(attempt)), ExchangeType::CREATE_CHILD_SA) => {
            child::response(sa, cx, attempt, payloads);
        }
        _ => sa.fail(cx, "the peer answered by a message of another exchange"),
    }
    sa.next_task(cx);
}

/// The request of this side stays without an answer, or its own work failed: nothing else is waited for.
pub(crate) fn forget_handles(cx: &mut Context<'_>, own: IkeSpi, output: &Output) {
    let handle = match output {
        Output::Begun { begun, .. } => *begun,
        Output::IkeKeys(keys) => keys.sk_d,
        _ => return,
    };
    cx.work(own, Purpose::Forget, Work::Forget(vec![handle]));
}

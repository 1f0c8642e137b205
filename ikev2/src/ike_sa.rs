//! One IKE SA: its SPIs, keys, windows, children, and what it is doing.
//!
//! ```text
//!   Initiating ──┐                                                       ┌─► Closing ─► Gone
//!                ├─► Authenticating ─► Established ── tasks, one at a time ┘
//!   Responding ──┘                          each: a request, its response
//! ```

use crate::{
    connection::Connection,
    endpoint::{Action, ChildId, Event, LoggedKeys, Settings, peers::Peers},
    fragments::Fragments,
    groups::Random,
    keys::IkeSpis,
    message::IkeSpi,
    nat::Path,
    negotiation::Chosen,
    window::{Requests, Responses},
    work::{IkeKeyParts, Output, Work, WorkId},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(crate) mod answering;
pub(crate) mod child_state;
pub(crate) mod children;
pub(crate) mod creating;
mod current;
mod ending;
mod send;
mod state;
mod steps;
mod task;
mod tasks;

use child_state::ChildState;
use creating::{Creating, Inherited};
pub(crate) use current::{About, Current};
pub(crate) use state::{
    Agreed, Authenticating, Claimed, Ending, Established, FirstChild, Handshake, Initiating,
    Responding, SaKeys, State, Wanted,
};
pub(crate) use steps::{Step, Steps};
pub(crate) use task::Task;

/// One IKE SA.
pub(crate) struct IkeSa {
    pub spis: IkeSpis,
    /// Whether this side is the original initiator (RFC 7296 2.2: it sets the Initiator flag).
    pub is_initiator: bool,
    /// Whether this side began it, and the initiator's SPI: of the first one, where it has replaced others since.
    pub origin: (bool, [u8; 8]),
    /// Known to the initiator from the beginning, to the responder once the peer has said who it is.
    pub connection: Option<Arc<Connection>>,
    pub path: Path,
    /// Whether the peer sent IKEV2_FRAGMENTATION_SUPPORTED (RFC 7383 2.3), and this side too.
    pub peer_takes_fragments: bool,
    pub algorithms: Option<Chosen>,
    pub keys: Option<SaKeys>,
    pub requests: Requests,
    pub responses: Responses,
    pub fragments_of_requests: Fragments,
    pub fragments_of_responses: Fragments,
    pub state: State,
    pub children: Vec<ChildState>,
    /// What this side still has to request, in order.
    pub tasks: VecDeque<Task>,
    /// The request of this side that waits for key work or for its response. One at a time.
    pub current: Option<Current>,
    /// What happened, until it goes to the connection's story.
    pub steps: Steps,
    pub began_at: Duration,
    /// When the endpoint looks at it next.
    pub scheduled_at: Option<Duration>,
    /// What IKE_AUTH works with, until it is over.
    pub auth: Option<Box<Authenticating>>,
    /// Whether both sides began one at the same time and the other one stays.
    pub is_redundant: bool,
    /// Redundant, and begun by this side: when it is looked at next whether it can be closed.
    pub close_at: Option<Duration>,
    /// How it ended, until the endpoint has seen it.
    pub ending: Option<Ending>,
    /// State of CREATE_CHILD_SA exchanges and collisions.
    pub creating: Creating,
}

impl IkeSa {
    /// The own SPI: by it the peer's messages find this IKE SA.
    pub fn own_spi(&self) -> IkeSpi {
        IkeSpi(if self.is_initiator {
            self.spis.initiator
        } else {
            self.spis.responder
        })
    }

    /// A new IKE SA that knows nothing but its SPIs and its path.
    pub fn new(
        spis: IkeSpis,
        is_initiator: bool,
        path: Path,
        state: State,
        (schedule, window): (crate::window::Schedule, u32),
        now: Duration,
    ) -> Self {
        Self {
            spis,
            is_initiator,
            origin: (is_initiator, spis.initiator),
            connection: None,
            path,
            peer_takes_fragments: false,
            algorithms: None,
            keys: None,
            requests: Requests::new(schedule),
            responses: Responses::new(window),
            fragments_of_requests: Fragments::default(),
            fragments_of_responses: Fragments::default(),
            state,
            children: Vec::new(),
            tasks: VecDeque::new(),
            current: None,
            steps: Steps::default(),
            began_at: now,
            scheduled_at: None,
            auth: None,
            is_redundant: false,
            close_at: None,
            ending: None,
            creating: Creating::default(),
        }
    }

    pub fn connection_name(&self) -> &str {
        self.connection
            .as_ref()
            .map_or("", |connection| connection.name.as_str())
    }

    pub fn established(&self) -> Option<&Established> {
        match &self.state {
            State::Established(established) => Some(established),
            _ => None,
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// What is known of the peer, also while this side waits for the answer to its Delete.
    pub fn known(&self) -> Option<&Established> {
        match &self.state {
            State::Established(established) | State::Closing(established) => Some(established),
            _ => None,
        }
    }

    /// When there is something to do here.
    pub fn next_at(&self) -> Option<Duration> {
        let mut times = vec![self.requests.next_at()];
        if let State::Lingering(until) = self.state {
            times.push(Some(until));
        }
        if let Some(established) = self.established() {
            times.push(established.rekey_at);
            times.push(established.children_at);
            times.push(self.close_at);
            times.push(self.liveness_at(established));
            times.extend(self.children.iter().map(ChildState::next_at));
            times.push(self.creating.next_at());
        }
        times.into_iter().flatten().min()
    }

    /// When the peer has been silent for so long that it is asked. A request that waits for its response asks already.
    pub fn liveness_at(&self, established: &Established) -> Option<Duration> {
        let dpd = self.connection.as_ref()?.dpd?;
        let is_idle = self.current.is_none() && self.tasks.is_empty();
        // The other side's question answers this one's too: both together would ask twice as often.
        let dpd = if self.is_initiator {
            dpd
        } else {
            dpd + dpd / 4
        };
        is_idle.then(|| established.heard_at.saturating_add(dpd))
    }
}

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

/// Changes to other IKE SAs that an IKE SA asks the endpoint for, which makes them after the current step.
pub(crate) enum Order {
    /// A new IKE SA that has replaced the one that made it.
    Adopt(Box<IkeSa>),
    /// The IKE SA with this own SPI goes on with the children of the one that it replaces.
    Inherit(IkeSpi, Box<Inherited>),
    /// The IKE SA with this own SPI was made in vain: it is deleted.
    CloseRedundant(IkeSpi),
    /// INITIAL_CONTACT: other IKE SAs of this connection and identity go, if they were up before this moment. What they
    /// carry goes over to the pairs of `keep`.
    ReplaceOthers {
        keep: IkeSpi,
        connection: String,
        identity: String,
        before: Duration,
    },
    /// This IKE SA is up: redundant ones of the same connection and identity are looked for.
    Established { own: IkeSpi },
    /// Outbound traffic has moved to a pair of this IKE SA: it may have moved away from pairs of another one.
    MovedTo { own: IkeSpi },
    /// This redundant IKE SA is closed if the peer lives by the one that stays.
    CloseIfOtherLives { own: IkeSpi },
    /// One of several IKE SAs of this connection and identity has ended.
    Ended {
        connection: String,
        identity: String,
        was_redundant: bool,
    },
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
    /// Starts a work; its result comes to [`exchange::done`](crate::exchange::done).
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

    /// Gives the keys of a new IKE SA to a log, if one is wanted.
    pub fn log_keys(&mut self, spis: IkeSpis, keys: &IkeKeyParts) {
        if self.shared.settings.log_keys {
            self.act(Action::LogKeys(Box::new(LoggedKeys {
                spis,
                initiator: keys.initiator.clone(),
                responder: keys.responder.clone(),
            })));
        }
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

/// A nonce of 32 bytes: at least 128 bits and half the key of any pseudorandom function here (RFC 7296 2.10).
pub(crate) const NONCE_BYTES: usize = 32;

/// The request of this side stays without an answer, or its own work failed: nothing else is waited for.
pub(crate) fn forget_handles(cx: &mut Context<'_>, own: IkeSpi, output: &Output) {
    let handle = match output {
        Output::Begun { begun, .. } => *begun,
        Output::IkeKeys(keys) => keys.sk_d,
        _ => return,
    };
    cx.work(own, Purpose::Forget, Work::Forget(vec![handle]));
}

//! One IKE SA: its SPIs, keys, windows, children, and what it is doing.
//!
//! ```text
//!   Initiating ──┐                                                       ┌─► Closing ─► Gone
//!                ├─► Authenticating ─► Established ── tasks, one at a time ┘
//!   Responding ──┘                          each: a request, its response
//! ```

use crate::{
    connection::Connection,
    encrypted::{MessageKey, Sealer},
    exchange::{Context, auth, child, informational, init},
    fragments::Fragments,
    ike_sa::children::ChildState,
    keys::IkeSpis,
    message::IkeSpi,
    nat::Path,
    negotiation::Chosen,
    window::{Requests, Responses},
    work::Handle,
};
use ipsec::suite::Secret;
use std::{collections::VecDeque, sync::Arc, time::Duration};

pub(crate) mod children;
mod ending;
pub(crate) mod receive;
mod send;
mod tasks;

pub(crate) use ending::Ending;
pub(crate) use tasks::{Current, Task};

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
    pub steps: Vec<Step>,
    pub began_at: Duration,
    /// When the endpoint looks at it next.
    pub scheduled_at: Option<Duration>,
    /// What IKE_AUTH works with, until it is over.
    pub auth: Option<Box<auth::Authenticating>>,
    /// Whether both sides began one at the same time and the other one stays.
    pub is_redundant: bool,
    /// How it ended, until the endpoint has seen it.
    pub ending: Option<Ending>,
    /// State of CREATE_CHILD_SA exchanges and collisions.
    pub creating: child::Creating,
}

/// A step of the story.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub at: Duration,
    pub is_failure: bool,
    pub text: String,
}

/// The keys of an IKE SA.
pub(crate) struct SaKeys {
    pub sealer: Sealer,
    pub opener: MessageKey,
    pub sk_d: Handle,
    /// SK_pi and SK_pr, until both sides are authenticated.
    pub authentication: Option<(Secret, Secret)>,
}

/// What an IKE SA is doing.
pub(crate) enum State {
    /// IKE_SA_INIT as initiator.
    Initiating(Box<init::Initiating>),
    /// IKE_SA_INIT as responder: the keys are being made.
    Responding(Box<init::Responding>),
    /// IKE_AUTH.
    Authenticating,
    /// Both sides are authenticated.
    Established(Box<Established>),
    /// This side has sent a Delete.
    Closing(Box<Established>),
    /// It has ended, and only answers a request that comes again, until this moment.
    Lingering(Duration),
    /// To be removed.
    Gone,
}

/// What is known of an authenticated peer.
pub(crate) struct Established {
    /// The peer's identity, as text.
    pub identity: String,
    /// How it proved it.
    pub proof: String,
    pub since: Duration,
    /// When the IKE SA is rekeyed.
    pub rekey_at: Option<Duration>,
    /// When the last authentic packet came.
    pub heard_at: Duration,
    /// When children that are missing are asked for again.
    pub children_at: Option<Duration>,
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
            steps: Vec::new(),
            began_at: now,
            scheduled_at: None,
            auth: None,
            is_redundant: false,
            ending: None,
            creating: child::Creating::default(),
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
            times.push(self.liveness_at(established));
            times.extend(self.children.iter().map(ChildState::next_at));
            times.push(self.creating.next_at());
        }
        times.into_iter().flatten().min()
    }

    /// Something is due.
    pub fn timer(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, State::Lingering(until) if until <= cx.now) {
            self.state = State::Gone;
        }
        init::initiator::give_up_after_refusal(self, cx);
        self.repeat_requests(cx);
        if self.established().is_some() {
            informational::check_liveness(self, cx);
            child::timer(self, cx);
            let children_at = self.established().and_then(|known| known.children_at);
            if children_at.is_some_and(|at| at <= cx.now) {
                self.bring_up_children(cx);
            }
            self.next_task(cx);
        }
    }
}

//! The kernel's SAD and SPD, made to match the databases of a gateway whose traffic the kernel seals and opens.
//!
//! ```text
//!   snapshot ──► put: associations, then policies ──► routes and barriers follow ──► remove_others
//!   kernel   ──► read_counters: numbers, lifetimes, drops ──► the same association's state
//!   watch    ──► missing ──► restore: an association goes on behind every number that it may have used
//! ```
//!
//! Compared is always with what the kernel has: other programs add and remove too. Only what carries the marks of this
//! gateway ([`Owner`]) is changed or removed.

mod by_device;
mod compare;
mod counters;
mod ending;
mod errors;
mod listed;
mod moving;
mod passed_on;
mod policies;
mod removal;
mod search_order;
mod served;
mod side_by_side;
mod watch;

use super::direction::SaDirection;
use super::features;
use super::owner::{MAX_POLICIES, Owner};
use super::policy::PolicyName;
use super::socket::XfrmSocket;
use super::zeroizing::ZeroizingMessage;
use crate::failure::Failure;
use crate::plane::Parting;
use crate::routes::Site;
use compare::{is_carried, is_the_same, looks_alike, sa_of};
use counters::{DropsBefore, REASONS, drops_of};
use errors::about_sa;
use ipsec::database::Snapshot;
use ipsec::policy::{Direction, Policy};
use ipsec::sa::{Sa, SaId, SavedCounters};
use netlink_packet_xfrm::XfrmMessage;
use netlink_packet_xfrm::policy::ModifyMessage as ModifyPolicy;
use netlink_packet_xfrm::state::ModifyMessage;
use search_order::last_of_the_search_first;
use served::{Served, SpecialTunnels};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// The associations and policies of one gateway in the kernel.
pub(crate) struct KernelDatabases {
    kernel: XfrmSocket,
    owner: Owner,
    sas: HashMap<SaId, HeldSa>,
    policies: HashMap<PolicyName, HeldPolicy>,
    free_numbers: BTreeSet<u32>,
    /// Associations that an earlier gateway of this site has left, and that none of this one's has taken over.
    left: HashSet<SaId>,
    /// Associations that it has passed on, and that were in the kernel when it was asked.
    passed_on: HashSet<SaId>,
    /// Whether it is known what an earlier gateway has left.
    has_read_leftovers: bool,
    carried: Carried,
    /// Addresses of this host, which tell inbound associations.
    local: Vec<IpAddr>,
    /// Names of the devices that existed at the last `put`.
    devices: Vec<Arc<str>>,
    /// Names of the policies of the last `put`.
    wanted: HashSet<PolicyName>,
    /// Tunnels whose associations need a mode or an offload that the policy names.
    special: SpecialTunnels,
    /// What is not the kernel's, while both planes carry.
    parting: Option<Arc<Parting>>,
}

/// An association that the kernel carries.
struct HeldSa {
    sa: Arc<Sa>,
    is_inbound: bool,
    direction: Option<SaDirection>,
    /// What it had carried before the kernel began to count.
    before: SavedCounters,
    /// What the kernel had counted when it was last asked.
    seen: SavedCounters,
    /// Drops that do not count, and drops that were counted before it.
    drops: DropsBefore,
}

/// A policy that the kernel enforces; without one it is an earlier gateway's.
struct HeldPolicy {
    policy: Option<Arc<Policy>>,
    /// As the earlier gateway has left it.
    left: Option<Box<ModifyPolicy>>,
    served: Served,
    number: u32,
}

/// Packets and bytes that the kernel has sealed and opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Carried {
    /// Outbound, then inbound: packets and bytes.
    pub ways: [(u64, u64); 2],
}

impl KernelDatabases {
    /// Connects to the kernel; changes nothing yet.
    pub(crate) fn open(site: &Site) -> Result<Self, Failure> {
        Ok(Self {
            kernel: XfrmSocket::open().map_err(Failure::new)?,
            owner: Owner::of(site),
            sas: HashMap::new(),
            policies: HashMap::new(),
            free_numbers: (0..MAX_POLICIES).collect(),
            left: HashSet::new(),
            passed_on: HashSet::new(),
            has_read_leftovers: false,
            carried: Carried::default(),
            local: Vec::new(),
            devices: Vec::new(),
            wanted: HashSet::new(),
            special: SpecialTunnels::default(),
            parting: None,
        })
    }

    /// The number by which the kernel's notifications name the changes of this connection.
    pub(crate) fn port(&self) -> u32 {
        self.kernel.port()
    }

    /// Adds and changes what the snapshot has: associations first, so that no policy waits for one.
    /// `local` are this host's addresses, `devices` the names of those beside the first.
    pub(crate) fn put(
        &mut self,
        snapshot: &Snapshot,
        local: &[IpAddr],
        devices: Vec<Arc<str>>,
    ) -> io::Result<()> {
        local.clone_into(&mut self.local);
        self.devices = devices;
        self.put_again(snapshot)
    }

    /// Adds and changes what the snapshot has, for the addresses and devices of the last `put`.
    fn put_again(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.read_leftovers()?;
        for sa in snapshot.sas() {
            self.put_sa(sa)?;
        }
        let (policies, names) = by_device::policies(snapshot, &self.local, &self.devices);
        let (policies, names) = self.of_the_kernel(snapshot, policies, names);
        self.wanted = names;
        self.special = SpecialTunnels::of(snapshot);
        policies
            .iter()
            .try_for_each(|policy| self.put_policy(policy))
    }

    /// Removes what is this gateway's and not in the snapshot of the last `put`: policies first, so that none is left
    /// that no association can satisfy while its traffic is allowed to pass.
    pub(crate) fn remove_others(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let names = self.policies.keys().copied();
        let others: Vec<_> = names.filter(|name| !self.wanted.contains(name)).collect();
        for name in last_of_the_search_first(others, snapshot) {
            self.remove_policy(name)?;
        }
        self.let_pass(snapshot)?;
        self.remove_left()?;
        let ids: Vec<_> = self.sas.keys().copied().collect();
        let is_carried = |id: &SaId| {
            let place = snapshot.find(id);
            place.is_some_and(|place| is_carried(snapshot.sa(place)))
        };
        for id in ids {
            if !is_carried(&id) || !self.is_kernels(&id) {
                self.remove_sa(&id)?;
            }
        }
        Ok(())
    }

    /// Asks the kernel for the numbers, lifetimes and drops of all associations.
    pub(crate) fn read_counters(&mut self) -> io::Result<()> {
        for answer in self.list_sas()? {
            if let Some((id, message)) = sa_of(&answer) {
                self.observe(&id, message);
            }
        }
        Ok(())
    }

    /// What the kernel has carried, since the gateway began.
    pub(crate) fn carried(&self) -> Carried {
        self.carried
    }

    /// The policy of an index, as notifications of the kernel name it.
    pub(crate) fn policy_of_index(&self, index: u32) -> Option<Arc<Policy>> {
        let number = self.owner.number(index)?;
        let mut held = self.policies.values();
        let held = held.find(|held| held.number == number)?;
        held.policy.clone()
    }

    /// The association of this name, if the kernel carries it for this gateway.
    pub(crate) fn sa(&self, id: &SaId) -> Option<&Arc<Sa>> {
        self.sas.get(id).map(|held| &held.sa)
    }

    /// Takes over what the kernel reports of one association.
    pub(crate) fn observe(&mut self, id: &SaId, message: &ModifyMessage) {
        self.observe_numbers(id, message, counters::read(message));
    }

    /// The same with other numbers than the message has.
    fn observe_numbers(&mut self, id: &SaId, message: &ModifyMessage, now: SavedCounters) {
        let Some(held) = self.sas.get_mut(id) else {
            return;
        };
        let (config, state) = (&held.sa.config, &held.sa.state);
        state.observe(
            config,
            &SavedCounters {
                bytes: held.before.bytes.saturating_add(now.bytes),
                packets: held.before.packets.saturating_add(now.packets),
                ..now
            },
        );
        let before = &held.drops;
        for (place, count) in drops_of(message).into_iter().enumerate() {
            let new = count.saturating_sub(before.by_kernel[place]);
            state.set_drops(REASONS[place], before.by_user_plane[place] + new);
        }
        let way = &mut self.carried.ways[usize::from(held.is_inbound)];
        way.0 += now.packets.saturating_sub(held.seen.packets);
        way.1 += now.bytes.saturating_sub(held.seen.bytes);
        held.seen = now;
    }

    fn put_sa(&mut self, sa: &Arc<Sa>) -> io::Result<()> {
        let id = sa.config.id;
        if !is_carried(sa) || !self.is_kernels(&id) {
            return Ok(());
        }
        let way = (self.is_inbound(sa), self.direction(sa));
        if let Some(held) = self.sas.get_mut(&id) {
            let is_as_before = (held.is_inbound, held.direction) == way;
            if is_as_before && Arc::ptr_eq(&held.sa, sa) {
                return Ok(());
            }
            if is_as_before
                && looks_alike(&held.sa.config, &sa.config)
                && Arc::ptr_eq(&held.sa.state, &sa.state)
            {
                held.sa = Arc::clone(sa);
                return Ok(());
            }
            self.remove_sa(&id)?;
        } else {
            let was_there = self.passed_on.remove(&id);
            if self.takes_over(sa)? {
                return Ok(());
            }
            if was_there {
                Self::go_on_behind(sa);
            }
        }
        self.add_from(sa, sa.state.saved())
    }

    /// Adds an association that goes on behind these numbers.
    pub(crate) fn add_from(&mut self, sa: &Arc<Sa>, start: SavedCounters) -> io::Result<()> {
        let mark = self.owner.mark(self.is_inbound(sa));
        let mut message = counters::emit_from(&sa.config, &start, mark);
        features::put_direction(&sa.config, self.direction(sa), &mut message)?;
        let message = ZeroizingMessage::new(XfrmMessage::AddSa(message));
        self.kernel
            .create(&message)
            .map_err(|refusal| about_sa(&sa.config.id, &refusal))?;
        self.hold(sa, start, SavedCounters::default());
        Ok(())
    }

    /// The directions of the associations, where the kernel keeps them.
    pub(crate) fn kept_directions(&self) -> HashMap<SaId, Direction> {
        if !features::known().directions {
            return HashMap::new();
        }
        let kept = self.sas.iter().filter_map(|(id, held)| {
            let direction = match held.direction? {
                SaDirection::Outbound => Direction::Out,
                SaDirection::Inbound => Direction::In,
            };
            Some((*id, direction))
        });
        kept.collect()
    }

    fn is_inbound(&self, sa: &Sa) -> bool {
        self.local.contains(&sa.config.id.destination)
    }

    fn direction(&self, sa: &Sa) -> Option<SaDirection> {
        SaDirection::of(&sa.config, &self.local)
    }

    fn hold(&mut self, sa: &Arc<Sa>, before: SavedCounters, seen: SavedCounters) {
        let held = HeldSa {
            sa: Arc::clone(sa),
            is_inbound: self.is_inbound(sa),
            direction: self.direction(sa),
            before,
            seen,
            drops: DropsBefore::default(),
        };
        self.left.remove(&held.sa.config.id);
        self.sas.insert(held.sa.config.id, held);
    }

    /// Whether the kernel has this association from an earlier process of this gateway. One that differs is removed.
    fn takes_over(&mut self, sa: &Arc<Sa>) -> io::Result<bool> {
        let found = self.find(&sa.config.id)?;
        let found = found.as_ref().and_then(sa_of);
        let Some((_, message)) = found.filter(|(_, message)| self.owner.owns_sa(message)) else {
            return Ok(false);
        };
        if !is_the_same(message, &sa.config, self.direction(sa)) {
            self.delete(&sa.config.id)?;
            return Ok(false);
        }
        let seen = counters::read(message);
        let known = sa.state.saved();
        // A gateway that died while it moved may have used numbers of which the kernel does not know.
        let direction = self.direction(sa);
        let opens = direction != Some(SaDirection::Outbound) && sa.config.replay_window > 0;
        let seals = direction != Some(SaDirection::Inbound) && seen.packets == 0;
        if opens && seen.edge < known.edge || seals && seen.sent < known.sent {
            self.delete_and_learn(sa)?;
            return Ok(false);
        }
        let before = SavedCounters {
            bytes: known.bytes.saturating_sub(seen.bytes),
            packets: known.packets.saturating_sub(seen.packets),
            ..SavedCounters::default()
        };
        self.hold(sa, before, seen);
        Ok(true)
    }
}

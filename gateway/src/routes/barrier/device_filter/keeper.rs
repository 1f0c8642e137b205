//! Adds, compares and deletes the filters of one device at a time.

use super::faults::{self, Refusal};
use super::filtered_device::{FilteredDevice, Handles, PREFERENCE};
use crate::routes::Site;
use crate::routes::device_filter::FilterHook;
use crate::routes::device_filter::assembler::Instruction;
use crate::routes::netlink::Netlink;
use crate::routes::netlink::traffic_control::{Device, Filter, FilterId};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Both directions of a device, in the order in which their programs are given.
pub(super) const HOOKS: [FilterHook; 2] = [FilterHook::Ingress, FilterHook::Egress];

/// The programs of one direction of a device.
pub(super) type Programs = Arc<Vec<Vec<Instruction>>>;

/// Changes filters of devices in the kernel.
pub(super) struct Keeper {
    netlink: Netlink,
    handles: Handles,
    /// Devices whose `clsact` the gateway has added.
    made: BTreeSet<u32>,
}

impl Keeper {
    /// Opens a netlink socket and changes nothing.
    pub(super) fn open(site: &Site) -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            handles: Handles::of(site),
            made: BTreeSet::new(),
        })
    }

    /// All devices.
    pub(super) fn devices(&mut self) -> io::Result<Vec<Device>> {
        self.netlink.devices()
    }

    /// The kind of qdisc in the place of `clsact`, by device.
    pub(super) fn disciplines(&mut self) -> io::Result<BTreeMap<u32, String>> {
        let all = self.netlink.disciplines()?.into_iter();
        Ok(all.map(|there| (there.device, there.kind)).collect())
    }

    /// Packets dropped on devices whose `clsact` the gateway has added: another program's `clsact` also counts the
    /// drops of that program's filters.
    pub(super) fn dropped(&mut self) -> io::Result<u64> {
        let all = self.netlink.disciplines()?.into_iter();
        let ours = all.filter(|there| self.made.contains(&there.device));
        Ok(ours.map(|there| u64::from(there.drops)).sum())
    }

    /// A device was removed, and its filters with it.
    pub(super) fn forget(&mut self, device: u32) {
        self.made.remove(&device);
    }

    /// Adds the filters that a device lacks, and appends them to `added`. `there` is the kind of qdisc in the place of
    /// `clsact`.
    pub(super) fn add(
        &mut self,
        place: &FilteredDevice,
        there: Option<&str>,
        wanted: &[Programs; 2],
        added: &mut Vec<FilterId>,
    ) -> io::Result<Result<(), Refusal>> {
        if wanted.iter().all(|programs| programs.is_empty()) {
            return Ok(Ok(()));
        }
        if let Some(kind) = there.filter(|kind| *kind != "clsact") {
            return Ok(Err(faults::has_ingress_of_old(&place.name, kind)));
        }
        match self.try_to_add(place.index, there.is_some(), wanted, added) {
            Ok(()) => Ok(Ok(())),
            Err(error) => {
                let is_there = self.disciplines()?.contains_key(&place.index);
                faults::sort(error, &place.name, is_there).map(Err)
            }
        }
    }

    fn try_to_add(
        &mut self,
        device: u32,
        is_there: bool,
        wanted: &[Programs; 2],
        added: &mut Vec<FilterId>,
    ) -> io::Result<()> {
        if !is_there {
            self.make_place(device)?;
        }
        let mut present = Vec::new();
        for hook in HOOKS {
            present.push(self.ours(device, hook)?);
        }
        for ((hook, programs), present) in HOOKS.into_iter().zip(wanted).zip(present) {
            let mut taken: Vec<_> = present.iter().map(|filter| filter.handle).collect();
            for program in lacking(programs, &present) {
                let handle = self.handles.free(&taken, self.made.contains(&device));
                let id = filter_id(device, hook, handle);
                self.netlink.add_filter(id, program)?;
                taken.push(handle);
                added.push(id);
            }
        }
        Ok(())
    }

    fn make_place(&mut self, device: u32) -> io::Result<()> {
        self.made.remove(&device);
        match self.netlink.add_clsact(device) {
            Ok(()) => drop(self.made.insert(device)),
            // Another program has added it meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The gateway's filters in one direction of a device.
    fn ours(&mut self, device: u32, hook: FilterHook) -> io::Result<Vec<Filter>> {
        let mut filters = self.netlink.filters(device, hook)?;
        filters.retain(|filter| self.handles.has(filter));
        if filters.iter().any(|filter| self.handles.says_made(filter)) {
            self.made.insert(device);
        }
        Ok(filters)
    }

    /// Deletes the gateway's filters but those wanted. If none is wanted, deletes `clsact` too, provided that the
    /// gateway has added it and no other filter is in it.
    pub(super) fn clear(&mut self, device: u32, wanted: Option<&[Programs; 2]>) -> io::Result<()> {
        let nothing = wanted.is_none_or(|wanted| wanted.iter().all(|programs| programs.is_empty()));
        if nothing && self.is_ours_alone(device)? {
            // In one step: if it fails, the filters are still there, and their handles record who has added `clsact`.
            self.netlink.delete_clsact(device).or_else(gone)?;
            self.made.remove(&device);
            return Ok(());
        }
        for (number, hook) in HOOKS.into_iter().enumerate() {
            let present = self.ours(device, hook)?;
            let wanted = wanted.map_or(&[][..], |wanted| &wanted[number]);
            for filter in unwanted(wanted, &present) {
                let deleted = self
                    .netlink
                    .delete_filter(filter_id(device, hook, filter.handle));
                deleted.or_else(gone)?;
            }
        }
        Ok(())
    }

    /// Whether the gateway has added the device's `clsact`, and no other program's filter is in it.
    fn is_ours_alone(&mut self, device: u32) -> io::Result<bool> {
        for hook in HOOKS {
            let ours = self.ours(device, hook)?.len();
            if self.netlink.filters(device, hook)?.len() > ours {
                return Ok(false);
            }
        }
        Ok(self.made.contains(&device))
    }

    /// Describes which of the gateway's filters a device lacks, or has and should not.
    pub(super) fn lost(
        &mut self,
        place: &FilteredDevice,
        there: Option<&str>,
        wanted: &[Programs; 2],
    ) -> io::Result<Option<String>> {
        let (name, is_there) = (&place.name, there == Some("clsact"));
        if !is_there && wanted.iter().any(|programs| !programs.is_empty()) {
            return Ok(Some(format!("of {name} deleted (qdisc clsact)")));
        }
        if !is_there {
            return Ok(None);
        }
        let (mut lacks, mut exceeds) = (false, false);
        for (hook, programs) in HOOKS.into_iter().zip(wanted) {
            let present = self.ours(place.index, hook)?;
            lacks |= lacking(programs, &present).next().is_some();
            exceeds |= unwanted(programs, &present).next().is_some();
        }
        let word = match (lacks, exceeds) {
            (true, _) => "deleted",
            (false, true) => "changed",
            (false, false) => return Ok(None),
        };
        Ok(Some(format!("of {name} {word}")))
    }

    /// Deletes what was added before a change failed. A filter that cannot be deleted drops more than it should until
    /// the periodic comparison finds it.
    pub(super) fn undo(&mut self, added: &[FilterId]) {
        for id in added {
            let _ = self.netlink.delete_filter(*id);
        }
    }
}

fn filter_id(device: u32, hook: FilterHook, handle: u32) -> FilterId {
    FilterId {
        device,
        hook,
        preference: PREFERENCE,
        handle,
    }
}

fn is(program: &[Instruction], filter: &Filter) -> bool {
    filter.is_direct && filter.program == program
}

/// Wanted programs that no present filter has.
fn lacking<'a>(
    wanted: &'a [Vec<Instruction>],
    present: &'a [Filter],
) -> impl Iterator<Item = &'a [Instruction]> {
    let lacks = |program: &&Vec<Instruction>| !present.iter().any(|filter| is(program, filter));
    wanted.iter().filter(lacks).map(Vec::as_slice)
}

/// Filters whose program is not wanted, or that repeat an earlier one.
fn unwanted<'a>(
    wanted: &'a [Vec<Instruction>],
    present: &'a [Filter],
) -> impl Iterator<Item = &'a Filter> {
    present.iter().enumerate().filter_map(|(number, filter)| {
        let is_wanted = wanted.iter().any(|program| is(program, filter));
        let before = &present[..number];
        let is_double = before
            .iter()
            .any(|other| other.is_direct && filter.is_direct && other.program == filter.program);
        (!is_wanted || is_double).then_some(filter)
    })
}

/// Counts as success if another program has deleted the object already.
fn gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EINVAL) => Ok(()),
        _ => Err(error),
    }
}

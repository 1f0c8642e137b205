use super::*;
use ipsec::setkey::{Forwarding, NoNames, compile};

/// Counts calls, and fails on request, as a host does after it has changed a part. How the parts recover is tested in
/// `routes::installed`, whose model of a host refuses each step.
#[derive(Default)]
struct Pretend {
    enforced: usize,
    policies: usize,
    /// The policies of the plan that was last begun, whose traffic would otherwise pass unencrypted.
    begun: usize,
    fails: bool,
    /// Whether the old tables are refused too.
    fails_for_good: bool,
    /// What the threads read.
    published: Option<Arc<ArcSwap<Snapshot>>>,
    /// Of each time that what waits for the threads was done: whether they had the snapshot.
    followed: Vec<bool>,
    /// Whether that fails once.
    fails_to_follow: bool,
}

impl Kernel for Pretend {
    fn can_serve(&self, _: &SaConfig) -> Result<(), Unsupported> {
        Ok(())
    }

    fn enforce(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let policies = snapshot.policies(ipsec::policy::Direction::Out).count();
        self.begun = policies;
        if std::mem::replace(&mut self.fails, self.fails_for_good) {
            return Err(io::Error::other("no more room for rules"));
        }
        self.enforced += 1;
        self.policies = policies;
        Ok(())
    }

    fn follow(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if let Some(published) = &self.published {
            let has_it = std::ptr::eq(&**published.load(), snapshot);
            self.followed.push(has_it);
        }
        if std::mem::take(&mut self.fails_to_follow) {
            Err(io::Error::other("not now"))
        } else {
            Ok(())
        }
    }
}

fn plane() -> OwnPlane<Pretend> {
    OwnPlane::new(Pretend::default(), || 1_000_000, || 4)
}

fn commands(text: &str) -> Vec<Command> {
    compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames)
        .unwrap()
        .commands
}

const TUNNEL: &str = "
    add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
    spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;";

#[test]
fn commands_are_published_once_the_kernel_agrees() {
    let mut plane = plane();
    plane.apply(&commands(TUNNEL)).unwrap();
    assert_eq!(plane.published().load().sas().count(), 1);
    assert_eq!(plane.kernel().policies, 1);
}

#[test]
fn a_kernel_that_refuses_leaves_everything_as_it_was() {
    let mut plane = plane();
    plane.apply(&commands(TUNNEL)).unwrap();
    plane.kernel().fails = true;
    let refused = plane.apply(&commands("flush; spdflush;")).unwrap_err();
    assert_eq!(refused.reason, "no more room for rules");
    assert_eq!(plane.published().load().sas().count(), 1);
    assert_eq!(
        plane.kernel().begun,
        1,
        "the old policies were not put back"
    );
    plane.apply(&commands("spdflush;")).unwrap();
    assert_eq!(plane.kernel().policies, 0);
}

#[test]
fn what_waits_for_the_threads_is_done_once_they_have_the_snapshot_and_again_if_it_failed() {
    let mut plane = plane();
    let published = plane.published();
    plane.kernel().published = Some(published);
    plane.kernel().fails_to_follow = true;
    plane.apply(&commands(TUNNEL)).unwrap();
    plane.tick(|_, _| ()).1.unwrap();
    plane.tick(|_, _| ()).1.unwrap();
    assert_eq!(plane.kernel().followed, [true, true]);
    plane.kernel().fails = true;
    plane.apply(&commands("flush;")).unwrap_err();
    assert_eq!(plane.kernel().followed, [true, true, true]);
}

#[test]
fn a_start_that_is_refused_does_not_open_what_an_earlier_gateway_left_closed() {
    let mut plane = plane();
    plane.kernel().fails = true;
    plane.apply(&commands(TUNNEL)).unwrap_err();
    let kernel = plane.kernel();
    assert_eq!(
        (kernel.begun, kernel.enforced),
        (1, 0),
        "an empty plan was enforced"
    );
}

#[test]
fn what_cannot_be_taken_back_at_once_is_tried_at_every_tick() {
    let mut plane = plane();
    plane.apply(&commands(TUNNEL)).unwrap();
    (plane.kernel().fails, plane.kernel().fails_for_good) = (true, true);
    plane.apply(&commands("spdflush;")).unwrap_err();
    assert!(plane.tick(|_, _| ()).1.is_err());
    (plane.kernel().fails, plane.kernel().fails_for_good) = (false, false);
    let enforced = plane.kernel().enforced;
    plane.tick(|_, _| ()).1.unwrap();
    plane.tick(|_, _| ()).1.unwrap();
    assert_eq!(
        (plane.kernel().enforced, plane.kernel().policies),
        (enforced + 1, 1)
    );
}

#[test]
fn what_ends_is_reported_even_where_the_kernel_refuses_the_change() {
    let mut plane = OwnPlane::new(Pretend::default(), || 1_000_000, || 4);
    let mortal = TUNNEL.replace("-r 64", "-r 64 -lh 10");
    plane.apply(&commands(&mortal)).unwrap();
    plane.clock = || 1_000_011;
    plane.kernel().fails = true;
    let (events, followed) = plane.tick(|_, _| ());
    assert_eq!((events.len(), followed.is_err()), (1, true));
}

#[test]
fn one_bad_command_in_a_list_changes_nothing() {
    let mut plane = plane();
    let refused = plane
        .apply(&commands(&format!(
            "{TUNNEL} delete 192.0.2.1 192.0.2.2 esp 0x9999;"
        )))
        .unwrap_err();
    assert_eq!(refused.index, 2);
    assert_eq!(plane.published().load().sas().count(), 0);
    assert_eq!(plane.kernel().enforced, 0);
}

#[test]
fn questions_do_not_touch_the_kernel() {
    let mut plane = plane();
    plane.apply(&commands("dump; spddump;")).unwrap();
    assert_eq!(plane.kernel().enforced, 0);
}

#[test]
fn ah_and_bundles_are_taken() {
    let mut plane = plane();
    let text = format!(
        "{TUNNEL} add 192.0.2.1 192.0.2.2 ah 0x2001 -A hmac-sha1 0x000102030405060708090a0b0c0d0e0f10111213;
         spdadd 192.0.2.1 192.0.2.2 any -P out ipsec esp/transport//require ah/transport//require;"
    );
    plane.apply(&commands(&text)).unwrap();
    assert_eq!(plane.published().load().sas().count(), 2);
}

#[test]
fn a_delete_is_done_only_when_no_batch_holds_the_association() {
    let mut plane = plane();
    plane.apply(&commands(TUNNEL)).unwrap();
    let held = plane.published().load_full();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
        Instant::now()
    });
    plane.apply(&commands("flush;")).unwrap();
    plane.drain();
    let returned = Instant::now();
    assert!(holder.join().unwrap() <= returned);
}

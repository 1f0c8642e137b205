//! One request of a client of the control socket.

use super::{Gateway, Next};
use crate::control::{Answer, ClientId, Request};
use crate::run::ike::{AwaitedOutcome, StatusForm};

impl Gateway {
    /// Answers a request, or has its client wait until the ike process has reported.
    pub(super) fn serve_one(&mut self, id: ClientId, request: Request) -> Next {
        if !matches!(request, Request::Events | Request::Down | Request::Stop) {
            self.read_kernel_counters();
        }
        if let (true, Err(why)) = (changes_databases(&request), self.check_no_move()) {
            self.server.answer(id, &Answer::Refused(why.to_string()));
            return Next::Wait;
        }
        let answer = match request {
            Request::Setkey(text) => self.apply_text(&text),
            Request::Reload(text) => self.reload(text),
            Request::Rekey(request) => self.rekey(request),
            Request::Status => {
                self.ask_status(id, StatusForm::Data);
                return Next::Wait;
            }
            Request::StatusTable => {
                self.ask_status(id, StatusForm::Table);
                return Next::Wait;
            }
            Request::StatusText(question) => {
                self.ask_status_text(id, question);
                return Next::Wait;
            }
            Request::Why(name) => {
                self.ask_why(id, &name);
                return Next::Wait;
            }
            Request::UpPeer(name) => return self.wait_for_peer(id, AwaitedOutcome::Up(name)),
            Request::DownPeer(name) => return self.wait_for_peer(id, AwaitedOutcome::Down(name)),
            Request::RekeyPeer { name, ike } => {
                return self.wait_for_peer(id, AwaitedOutcome::Rekey { name, ike });
            }
            Request::Plane(question) => match self.plane(id, &question) {
                Some(answer) => answer,
                None => return Next::Wait,
            },
            Request::Drops => Answer::Drops(self.drops()),
            Request::Explain(question) => Answer::Explained(Box::new(self.explain(&question))),
            Request::Events => {
                self.server.listen(id);
                return Next::Wait;
            }
            Request::Down => {
                return Next::Stop {
                    take_away: true,
                    asked_by: Some(id),
                };
            }
            Request::Leave => match self.leave(None) {
                Ok(()) => return leaving(id),
                Err(why) => Answer::Refused(why.to_string()),
            },
            Request::LeaveTo(peers) => match self.leave(Some(peers)) {
                Ok(()) => return leaving(id),
                Err(why) => Answer::Refused(why.to_string()),
            },
            Request::Stop => {
                return Next::Stop {
                    take_away: self.options.fail_open,
                    asked_by: Some(id),
                };
            }
        };
        self.server.answer(id, &answer);
        Next::Wait
    }

    fn wait_for_peer(&mut self, id: ClientId, wanted: AwaitedOutcome) -> Next {
        self.command_peer(id, wanted);
        Next::Wait
    }
}

/// Whether a request would meet a move to the other plane half-way.
fn changes_databases(request: &Request) -> bool {
    matches!(
        request,
        Request::Setkey(_)
            | Request::Reload(_)
            | Request::Rekey(_)
            | Request::Leave
            | Request::LeaveTo(_)
    )
}

fn leaving(asked_by: ClientId) -> Next {
    Next::Stop {
        take_away: false,
        asked_by: Some(asked_by),
    }
}

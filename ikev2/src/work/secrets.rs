//! Pre-shared keys, private keys, SK_d of every IKE SA, and key exchanges in progress.

use super::{ExchangeStep, Handle, IkeKeyParts, Output, Work, WorkError};
use crate::{
    authentication::{Method, SharedSecret, sign},
    groups::{Group, KeyPair, Random},
    keys::{DerivationKey, IkeKeys, Nonces},
    prf,
    signatures::{PrivateKey, choice},
};
use ipsec::suite::Secret;
use multibuffer::Prf;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use zeroize::Zeroizing;

/// Key exchanges that may be in progress at a time.
const MAX_EXCHANGES_IN_PROGRESS: usize = 16_384;
/// IKE SAs whose SK_d is kept.
const MAX_KEPT_SK_D: usize = 131_072;

/// What signs, proves and derives. All of it is zeroed when dropped.
#[derive(Default)]
pub struct Secrets {
    shared: HashMap<u32, Secret>,
    private: HashMap<u32, PrivateKey>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    next: u64,
    exchanges: HashMap<Handle, KeyPair>,
    keys: HashMap<Handle, Arc<DerivationKey>>,
}

impl Secrets {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the pre-shared key of this number.
    pub fn add_shared_secret(&mut self, number: u32, secret: Secret) {
        self.shared.insert(number, secret);
    }

    /// Adds the private key of this number.
    pub fn add_private_key(&mut self, number: u32, key: PrivateKey) {
        self.private.insert(number, key);
    }

    /// Removes every pre-shared key and private key, before those of another configuration are added. Handles stay.
    pub fn remove_keys(&mut self) {
        self.shared.clear();
        self.private.clear();
    }

    /// Forgets all handles: the endpoint that had them is gone.
    pub fn forget_all(&self) {
        let mut kept = self.kept();
        kept.exchanges.clear();
        kept.keys.clear();
    }

    /// How many key exchanges are in progress, and how many SK_d are kept.
    pub fn held(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.exchanges.len(), kept.keys.len())
    }

    /// Does one work. Several threads may do so at a time.
    pub fn perform(&self, work: Work, random: Random<'_>) -> Result<Output, WorkError> {
        match work {
            Work::BeginExchange { group } => self.begin_exchange(group, random),
            Work::IkeKeys {
                exchange,
                chosen,
                nonces,
                spis,
                replaced,
            } => {
                let (shared, public) = self.agree(exchange, random)?;
                let prf = chosen.prf().ok_or(WorkError::Algorithm)?;
                let nonces = nonces_of(&nonces);
                let protection = chosen.protection();
                let keys = match replaced {
                    None => IkeKeys::initial(prf, protection, &shared, nonces, spis),
                    Some(old) => {
                        let old = self.sk_d(old)?;
                        old.rekeyed(prf, protection, &shared, nonces, spis)
                    }
                };
                self.keep(keys.map_err(|_| WorkError::Algorithm)?, public)
            }
            Work::ChildKeys {
                sk_d,
                exchange,
                chosen,
                nonces,
            } => {
                let agreed = exchange.map(|exchange| self.agree(exchange, random));
                let (shared, public) = agreed.transpose()?.unzip();
                let shared = shared.as_ref().map(|shared| shared.as_slice());
                let keys = self.sk_d(sk_d)?;
                let keys = keys.child(chosen.protection(), shared, nonces_of(&nonces));
                let keys = keys.map_err(|_| WorkError::Algorithm)?;
                Ok(Output::ChildKeys {
                    public: public.unwrap_or_default(),
                    initiator: keys.initiator,
                    responder: keys.responder,
                })
            }
            Work::SharedSecret {
                secret,
                prf,
                check,
                prove,
            } => self.by_shared_secret((secret, prf), check, prove),
            Work::Sign {
                key,
                announced,
                padding,
                octets,
            } => {
                let key = self.private.get(&key).ok_or(WorkError::Unknown(key))?;
                let choice = choice::choose(key, announced.as_deref(), padding);
                let (method, scheme) =
                    choice.map_err(|error| WorkError::Signature(error.to_string()))?;
                let data = sign(key, method, scheme, &octets).ok_or(WorkError::Algorithm)?;
                Ok(Output::Proof {
                    method: method.number(),
                    data,
                })
            }
            Work::Verify { trust, .. } => Err(WorkError::Unknown(trust)),
            Work::Forget(handles) => {
                let mut kept = self.kept();
                for handle in handles {
                    kept.exchanges.remove(&handle);
                    kept.keys.remove(&handle);
                }
                Ok(Output::Forgotten)
            }
        }
    }

    fn begin_exchange(&self, group: u16, random: Random<'_>) -> Result<Output, WorkError> {
        let group = Group::from_transform(group).ok_or(WorkError::Algorithm)?;
        let pair = KeyPair::generate(group, random);
        let pair = pair.map_err(|error| WorkError::KeyExchange(error.to_string()))?;
        let public = pair.public().to_vec();
        let mut kept = self.kept();
        if kept.exchanges.len() >= MAX_EXCHANGES_IN_PROGRESS {
            return Err(WorkError::Full);
        }
        let begun = kept.handle();
        kept.exchanges.insert(begun, pair);
        Ok(Output::Begun { begun, public })
    }

    /// The shared secret, and the own public value if it is new.
    fn agree(
        &self,
        exchange: ExchangeStep,
        random: Random<'_>,
    ) -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), WorkError> {
        let (pair, peer, is_new) = match exchange {
            ExchangeStep::Complete { begun, peer } => {
                let pair = self.kept().exchanges.remove(&begun);
                (pair.ok_or(WorkError::UnknownHandle)?, peer, false)
            }
            ExchangeStep::Answer { group, peer } => {
                let group = Group::from_transform(group).ok_or(WorkError::Algorithm)?;
                let pair = KeyPair::generate(group, random);
                let pair = pair.map_err(|error| WorkError::KeyExchange(error.to_string()))?;
                (pair, peer, true)
            }
        };
        let public = if is_new {
            pair.public().to_vec()
        } else {
            Vec::new()
        };
        let shared = pair.agree(&peer);
        let shared = shared.map_err(|error| WorkError::KeyExchange(error.to_string()))?;
        Ok((shared, public))
    }

    /// Keeps SK_d and gives the rest.
    fn keep(&self, keys: IkeKeys, public: Vec<u8>) -> Result<Output, WorkError> {
        let mut parts = IkeKeyParts {
            sk_d: Handle(0),
            public,
            initiator: keys.initiator,
            responder: keys.responder,
            pi: keys.pi,
            pr: keys.pr,
        };
        let mut kept = self.kept();
        if kept.keys.len() >= MAX_KEPT_SK_D {
            return Err(WorkError::Full);
        }
        parts.sk_d = kept.handle();
        kept.keys.insert(parts.sk_d, Arc::new(keys.d));
        Ok(Output::IkeKeys(Box::new(parts)))
    }

    fn sk_d(&self, handle: Handle) -> Result<Arc<DerivationKey>, WorkError> {
        let keys = self.kept().keys.get(&handle).cloned();
        keys.ok_or(WorkError::UnknownHandle)
    }

    fn by_shared_secret(
        &self,
        (number, prf): (u32, u16),
        check: Option<(u8, Vec<u8>, Vec<u8>)>,
        prove: Option<Vec<u8>>,
    ) -> Result<Output, WorkError> {
        let secret = self.shared.get(&number).ok_or(WorkError::Unknown(number))?;
        let prf: Prf = prf::from_transform(prf).ok_or(WorkError::Algorithm)?;
        let secret = SharedSecret::new(prf, secret.expose());
        if let Some((method, data, octets)) = check {
            let checked = secret.check(method, &data, &octets);
            checked.map_err(|error| WorkError::Authentication(error.to_string()))?;
        }
        let data = prove.map_or_else(Vec::new, |octets| secret.prove(&octets).to_vec());
        Ok(Output::Proof {
            method: Method::SharedSecret.number(),
            data,
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What is inside is consistent between any two statements that hold the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn handle(&mut self) -> Handle {
        self.next += 1;
        Handle(self.next)
    }
}

fn nonces_of((initiator, responder): &(Vec<u8>, Vec<u8>)) -> Nonces<'_> {
    Nonces {
        initiator,
        responder,
    }
}

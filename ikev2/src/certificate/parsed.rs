//! One certificate, as far as IKE looks at it.

use super::constraints::{GeneralName, NameConstraints};
use crate::{
    identity::{DistinguishedName, Identity, comparable},
    signatures::{PublicKey, PublicKeyError, algorithm_identifier},
};
use aws_lc_rs::digest;
use rustls_pki_types::CertificateDer;
use std::{error::Error, fmt, net::IpAddr};
use x509_cert::{
    TbsCertificate,
    der::{Decode, Encode, Reader, SliceReader, Tag, Tagged, asn1::ObjectIdentifier},
    ext::pkix::{
        BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName, SubjectKeyIdentifier, name,
    },
};

/// The largest certificate that is taken, in bytes.
pub const MAX_CERTIFICATE_LEN: usize = 64 << 10;

/// Purposes that a certificate for IKE may have where it names any: IKE (RFC 4945 5.1.3.12), any, those that gateways
/// carry for the sake of other software (TLS server and client), and three that are older than RFC 4945.
const PURPOSES: [ObjectIdentifier; 8] = [
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.17"),
    ObjectIdentifier::new_unwrap("2.5.29.37.0"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.5"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.6"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.7"),
    ObjectIdentifier::new_unwrap("1.3.6.1.5.5.8.2.2"),
];

/// The attribute emailAddress of a subject (RFC 5280 4.1.2.6).
const EMAIL_ADDRESS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1");

/// A certificate that was read: nothing in it is proven.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: CertificateDer<'static>,
    tbs: TbsCertificate,
    key: Result<PublicKey, PublicKeyError>,
    alternatives: Vec<name::GeneralName>,
    identities: Vec<Identity>,
    name_constraints: NameConstraints,
    hidden: Option<CertificateDer<'static>>,
    usage: Option<KeyUsage>,
    purposes: Option<ExtendedKeyUsage>,
    is_ca: bool,
}

/// Why bytes are no certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateError {
    /// More than `MAX_CERTIFICATE_LEN` bytes.
    TooLong(usize),
    /// They are no certificate of X.509.
    Malformed,
    /// An extension that IKE needs is malformed.
    Extension,
    /// Its name constraints are malformed, or have a minimum or maximum.
    NameConstraints,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => write!(
                f,
                "a certificate of {len} bytes is longer than {MAX_CERTIFICATE_LEN}"
            ),
            Self::Malformed => f.write_str("the bytes are no X.509 certificate"),
            Self::Extension => {
                f.write_str("an extension of the certificate is malformed or there twice")
            }
            Self::NameConstraints => f.write_str(
                "the name constraints of the certificate are malformed or have a minimum or maximum",
            ),
        }
    }
}

impl Error for CertificateError {}

impl Certificate {
    /// Reads a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        if der.len() > MAX_CERTIFICATE_LEN {
            return Err(CertificateError::TooLong(der.len()));
        }
        let certificate =
            x509_cert::Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
        let tbs = certificate.tbs_certificate().clone();
        let spki = tbs.subject_public_key_info().to_der();
        let spki = spki.map_err(|_| CertificateError::Malformed)?;
        let constraints = extension::<BasicConstraints>(&tbs)?;
        let alternatives =
            extension::<SubjectAltName>(&tbs)?.map_or_else(Vec::new, |names| names.0);
        let name_constraints =
            NameConstraints::of_certificate(der).ok_or(CertificateError::NameConstraints)?;
        Ok(Self {
            key: PublicKey::from_spki(&spki),
            identities: identities(&tbs, &alternatives)?,
            alternatives,
            hidden: name_constraints.hide(der).map(CertificateDer::from),
            name_constraints,
            usage: extension(&tbs)?,
            purposes: extension(&tbs)?,
            is_ca: constraints.is_some_and(|constraints| constraints.ca),
            der: CertificateDer::from(der.to_vec()),
            tbs,
        })
    }

    /// Its encoding.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Its public key, if that is of a kind that IKE signs with.
    pub fn key(&self) -> Result<&PublicKey, &PublicKeyError> {
        self.key.as_ref()
    }

    /// The names of its holder, the subject first: addresses, domain names and mail addresses of subjectAltName, and
    /// the identifier of its key. A domain name in the subject's CN counts for nothing (RFC 4945 5.1.3.1).
    pub fn identities(&self) -> &[Identity] {
        &self.identities
    }

    /// Its subject, for people.
    pub fn subject(&self) -> String {
        self.named(self.tbs.subject())
    }

    /// Its issuer, for people.
    pub fn issuer(&self) -> String {
        self.named(self.tbs.issuer())
    }

    /// Its serial number.
    pub fn serial(&self) -> &[u8] {
        self.tbs.serial_number().as_bytes()
    }

    /// From when and until when it is valid, in seconds since the Unix epoch.
    pub fn validity(&self) -> (u64, u64) {
        let validity = self.tbs.validity();
        let seconds = |time: &x509_cert::time::Time| time.to_unix_duration().as_secs();
        (seconds(&validity.not_before), seconds(&validity.not_after))
    }

    /// SHA-1 over its SubjectPublicKeyInfo (RFC 7296 3.7).
    pub(super) fn key_hash(&self) -> Option<[u8; 20]> {
        let spki = self.tbs.subject_public_key_info().to_der().ok()?;
        let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &spki);
        digest.as_ref().try_into().ok()
    }

    /// Whether it may sign other certificates.
    pub(super) fn is_ca(&self) -> bool {
        self.is_ca
    }

    /// Whether its key may sign AUTH payloads: digitalSignature or nonRepudiation, or no key usage extension (RFC 4945
    /// 5.1.3.2).
    pub(super) fn may_sign_messages(&self) -> bool {
        let usage = self.usage.as_ref();
        usage.is_none_or(|usage| usage.digital_signature() || usage.non_repudiation())
    }

    /// Whether its key may sign certificates: keyCertSign, or no key usage extension (RFC 5280 4.2.1.3).
    pub(super) fn may_sign_certificates(&self) -> bool {
        self.usage.as_ref().is_none_or(KeyUsage::key_cert_sign)
    }

    /// Whether it names a purpose that is accepted for IKE, or none at all (RFC 4945 5.1.3.12).
    pub(super) fn is_for_ike(&self) -> bool {
        let purposes = self.purposes.as_ref();
        purposes.is_none_or(|purposes| purposes.0.iter().any(|purpose| PURPOSES.contains(purpose)))
    }

    /// Whether `other` has the name of this one's issuer.
    pub(super) fn names_issuer(&self, other: &Self) -> bool {
        self.tbs.issuer() == other.tbs.subject()
    }

    /// Whether the owner of `key` signed it.
    pub(super) fn is_signed_by(&self, key: &PublicKey) -> bool {
        parts(&self.der).is_some_and(|(signed, scheme, signature)| {
            let scheme = algorithm_identifier::decode(scheme);
            scheme.is_some_and(|scheme| key.verify(scheme, signed, signature).is_ok())
        })
    }

    /// Whether it is self-issued: its subject is its issuer (RFC 5280 6.1).
    pub(super) fn is_self_issued(&self) -> bool {
        comparable(self.tbs.issuer()) == comparable(self.tbs.subject())
    }

    /// Which names certificates below it may have.
    pub(super) fn name_constraints(&self) -> &NameConstraints {
        &self.name_constraints
    }

    /// Its encoding with those name constraints hidden that are checked here and not by rustls-webpki.
    pub(super) fn der_for_library(&self) -> &CertificateDer<'static> {
        self.hidden.as_ref().unwrap_or(&self.der)
    }

    /// What is signed, as rustls-webpki sees it by [`Self::der_for_library`], and as it is.
    pub(super) fn signed_parts(&self) -> Option<(&[u8], &[u8])> {
        Some((parts(self.der_for_library())?.0, parts(&self.der)?.0))
    }

    /// The names that name constraints apply to (RFC 5280 4.2.1.10): the subject, unless it is empty, the mail
    /// addresses in it, and all of subjectAltName. The RFC demands the mail addresses of the subject only where there
    /// is no subjectAltName; as with OpenSSL, they count always.
    pub(super) fn constrained_names(&self) -> Vec<GeneralName> {
        let subject = self.tbs.subject();
        let directory = (!subject.is_empty()).then(|| GeneralName::directory(subject));
        let mail = subject.iter().filter(|one| one.oid == EMAIL_ADDRESS);
        let mail = mail.map(|one| {
            let is_text = matches!(
                one.value.tag(),
                Tag::Ia5String | Tag::Utf8String | Tag::PrintableString
            );
            let text = str::from_utf8(one.value.value()).ok().filter(|_| is_text);
            GeneralName::Mail(text.map(str::to_owned))
        });
        let alternatives = self.alternatives.iter().map(GeneralName::from);
        directory
            .into_iter()
            .chain(mail)
            .chain(alternatives)
            .collect()
    }

    fn named(&self, name: &x509_cert::name::Name) -> String {
        let name = name
            .to_der()
            .ok()
            .and_then(|der| DistinguishedName::from_der(&der));
        match name {
            Some(name) => name.to_string(),
            None => "a certificate without a name".to_owned(),
        }
    }
}

/// Whether IKE takes this purpose, given as the numbers of its object identifier.
pub(super) fn is_purpose_of_ike(numbers: &[usize]) -> bool {
    PURPOSES.iter().any(|purpose| {
        let arcs = purpose.arcs().map(|arc| arc as usize);
        arcs.eq(numbers.iter().copied())
    })
}

/// What is signed, by which algorithm, and the signature.
fn parts(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut outer = SliceReader::new(der).ok()?;
    let parts = outer.sequence(|reader| {
        let signed = reader.tlv_bytes()?;
        let algorithm = reader.tlv_bytes()?;
        let signature = x509_cert::der::asn1::BitStringRef::decode(reader)?;
        Ok::<_, x509_cert::der::Error>((signed, algorithm, signature))
    });
    let (signed, algorithm, signature) = parts.ok()?;
    Some((signed, algorithm, signature.as_bytes()?))
}

fn extension<T>(tbs: &TbsCertificate) -> Result<Option<T>, CertificateError>
where
    T: for<'a> Decode<'a> + x509_cert::der::oid::AssociatedOid,
{
    let found = tbs.get_extension::<T>();
    let found = found.map_err(|_| CertificateError::Extension)?;
    Ok(found.map(|(_, extension)| extension))
}

fn identities(
    tbs: &TbsCertificate,
    alternatives: &[name::GeneralName],
) -> Result<Vec<Identity>, CertificateError> {
    let subject = tbs
        .subject()
        .to_der()
        .map_err(|_| CertificateError::Malformed)?;
    let subject = DistinguishedName::from_der(&subject);
    let mut identities: Vec<_> = subject
        .map(Identity::DistinguishedName)
        .into_iter()
        .collect();
    identities.extend(alternatives.iter().filter_map(alternative));
    let key = extension::<SubjectKeyIdentifier>(tbs)?;
    identities.extend(key.map(|key| Identity::KeyId(key.0.as_bytes().to_vec())));
    Ok(identities)
}

/// The identity for a name of subjectAltName; `None` for those that IKE cannot carry.
fn alternative(alternative: &name::GeneralName) -> Option<Identity> {
    match alternative {
        // With a wildcard it is no host name (RFC 4945 5.1.3.6 has no wildcards).
        name::GeneralName::DnsName(name) if name.as_str().contains('*') => None,
        name::GeneralName::DnsName(name) => Identity::from_payload(2, name.as_bytes()).ok(),
        name::GeneralName::Rfc822Name(address) => {
            Identity::from_payload(3, address.as_bytes()).ok()
        }
        name::GeneralName::DirectoryName(name) => {
            let name = DistinguishedName::from_der(&name.to_der().ok()?);
            name.map(Identity::DistinguishedName)
        }
        name::GeneralName::IpAddress(octets) => address(octets.as_bytes()).map(Identity::Address),
        _ => None,
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
    }
}

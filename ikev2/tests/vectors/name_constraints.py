#!/usr/bin/env python3
"""Makes name_constraints.json: chains under CAs with name constraints, and what each is to be judged as (RFC 5280).

    tests/ikev2/constraints.py    asks OpenSSL for its verdict on each

Run again, it makes others like them; their keys are thrown away.
"""

import json
from ipaddress import ip_address, ip_network
from pathlib import Path

from certificates import NOW, Entity, names, usage
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

SIGNING = (usage("key_cert_sign", "crl_sign"), True)
HOST = x509.DNSName("vpn.example.org")
OID = x509.ObjectIdentifier("2.5.29.30")
ORDER_OF_P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
FIELDS = {"C": NameOID.COUNTRY_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
          "CN": NameOID.COMMON_NAME, "E": NameOID.EMAIL_ADDRESS}

# Also what is no mail address.
mail = x509.RFC822Name._init_without_validation
uri, dns = x509.UniformResourceIdentifier, x509.DNSName
address = lambda text: x509.IPAddress(ip_address(text))
network = lambda text: x509.IPAddress(ip_network(text))
other = lambda last: x509.OtherName(x509.ObjectIdentifier(f"1.3.6.1.4.1.55555.{last}"), b"\x05\x00")


def dn(text, kind=None):
    """From `C=CH, O=Example`; parts of several attributes have `+`."""
    part = lambda text: x509.RelativeDistinguishedName(
        x509.NameAttribute(FIELDS[field], value, kind if field in ("O", "OU", "CN") else None)
        for field, value in (one.split("=") for one in text.split("+")))
    return x509.Name([part(one) for one in text.split(", ")] if text else [])


def directory(text, kind=None):
    return x509.DirectoryName(dn(text, kind))


def limits(permitted=None, excluded=None):
    return x509.NameConstraints(permitted, excluded), True


def raw(der):
    return x509.UnrecognizedExtension(OID, bytes.fromhex(der)), True


class Cases:
    def __init__(self):
        self.made = []
        self.root = Entity(dn("C=CH, O=Example, CN=Root"), ca=True, extensions=[SIGNING])

    def add(self, title, chain, verdict="good", at=0, words="", root=None, openssl=""):
        """`openssl`: why OpenSSL judges otherwise."""
        hexed = [one if isinstance(one, str) else one.der for one in chain]
        self.made.append({"title": title, "chain": hexed, "root": (root or self.root).der, "verdict": verdict, "at": at,
                          "words": words, "openssl": openssl})

    def ca(self, constraints, subject="C=CH, O=Example, CN=Limited", issuer=None, **more):
        return Entity(dn(subject), issuer or self.root, ca=True, extensions=[SIGNING, constraints], **more)

    def under(self, title, constraints, subject="C=CH, O=Example, CN=vpn", names_of_peer=(HOST,), verdict="good", at=0,
              words="", openssl=""):
        """A peer of these names under a CA with these constraints, as a critical extension."""
        ca = self.ca(constraints)
        alternatives = [names(*names_of_peer)] if names_of_peer else []
        peer = Entity(dn(subject) if isinstance(subject, str) else subject, ca, extensions=alternatives)
        self.add(title, [peer, ca], verdict, at, words, openssl=openssl)


def directories(cases):
    refused = {"verdict": "NameConstraint"}
    example, sales = directory("C=CH, O=Example"), directory("C=CH, O=Example, OU=Sales")
    under = cases.under
    under("a subject in a permitted directory", limits([example]))
    under("a subject that is the permitted directory", limits([directory("C=CH, O=Example, CN=vpn")]))
    under("a subject outside of a permitted directory", limits([sales]), **refused,
          words="of CN=Limited,O=Example,C=CH permit only OU=Sales,O=Example,C=CH, not its name CN=vpn,O=Example,C=CH")
    under("a subject in the first of two permitted directories", limits([example, sales]))
    under("a subject in the second of two permitted directories", limits([sales, example]))
    under("a subject shorter than the permitted directory", limits([sales]), "C=CH, O=Example", **refused)
    under("the parts of a permitted directory in another order", limits([example]), "O=Example, C=CH, CN=vpn", **refused)
    under("case, blanks and the type of text do not matter", limits([directory("C=CH, O= eXample   GmbH")]),
          dn("C=CH, O=Example gmbh , CN=vpn", _ASN1Type.PrintableString))
    under("nor do they where the directory is excluded", limits(None, [directory("C=CH, O= eXample   GmbH")]),
          dn("C=CH, O=Example gmbh , CN=vpn", _ASN1Type.PrintableString), **refused)
    under("text of BMPString in an excluded directory", limits(None, [directory("C=CH, O=Example")]),
          dn("C=CH, O=Example, CN=vpn", _ASN1Type.BMPString), **refused)
    under("a part of two attributes", limits([directory("C=CH, O=Example+OU=Sales")]), "C=CH, OU=sales+O=Example, CN=vpn")
    under("one of two attributes of a part", limits([directory("C=CH, O=Example+OU=Sales")]), "C=CH, O=Example, CN=vpn", **refused)
    under("a subject in an excluded directory", limits(None, [sales]), "C=CH, O=Example, OU=Sales, CN=vpn", **refused,
          words="exclude OU=Sales,O=Example,C=CH, and so its name CN=vpn,OU=Sales,O=Example,C=CH")
    under("a subject beside an excluded directory", limits(None, [sales]))
    under("excluded goes before permitted", limits([example], [sales]), "C=CH, O=Example, OU=Sales, CN=vpn", **refused)
    under("permitted and not excluded", limits([example], [sales]), "C=CH, O=Example, OU=Ops, CN=vpn")
    under("the empty directory permits every name", limits([directory("")]))
    under("the empty directory excludes every name", limits(None, [directory("")]), **refused, words="exclude (empty)")
    under("an empty subject is in no directory", limits([sales]), "")
    under("a directory of subjectAltName outside", limits([example]), names_of_peer=[HOST, directory("C=CH, O=Else")], **refused)
    long = ", ".join(["OU=" + "x" * 60] * 30)
    under("a long name is cut in the message", limits([sales]), f"C=CH, {long}", **refused, words="x …")
    under("a directory of subjectAltName inside", limits([example]), names_of_peer=[HOST, directory("C=CH, O=Example, OU=x")])


def mailboxes(cases):
    refused = {"verdict": "NameConstraint"}
    under = cases.under
    mailbox = lambda title, base, name, **more: under(f"mail: {title}", limits([mail(base)]), names_of_peer=[mail(name)], **more)
    mailbox("the permitted mailbox", "me@example.org", "me@example.org")
    mailbox("its domain in another case", "me@example.org", "me@Example.ORG")
    mailbox("its user in another case", "me@example.org", "ME@example.org", **refused,
            words="permit only mail address me@example.org, not its name mail address ME@example.org")
    mailbox("a mailbox on the permitted host", "example.org", "me@Example.org")
    mailbox("on a host below the permitted host", "example.org", "me@mx.example.org", **refused)
    mailbox("on a host in the permitted domain", ".example.org", "me@mx.example.org")
    mailbox("on the host of the permitted domain's name", ".example.org", "me@example.org", **refused)
    mailbox("on a host that ends like it", ".example.org", "me@notexample.org", **refused)
    mailbox("no mailbox", "example.org", "example.org", **refused, words="cannot be compared")
    mailbox("two at signs", "example.org", "me@example.net@example.org", **refused,
            openssl="it takes the last, as if the user were quoted")
    excluded = lambda title, base, name, **more: under(f"excluded mail: {title}", limits(None, [mail(base)]), names_of_peer=[mail(name)], **more)
    excluded("the mailbox", "me@example.org", "me@example.org", **refused)
    excluded("another mailbox", "me@example.org", "you@example.org")
    excluded("on the host", "example.org", "me@example.org", **refused, words="exclude mail address example.org")
    excluded("on a host below", "example.org", "me@mx.example.org")
    excluded("in the domain", ".example.org", "me@mx.example.org", **refused)
    excluded("on the host of the domain's name", ".example.org", "me@example.org")
    excluded("an empty subtree", "", "me@example.org", **refused, words="cannot be compared",
             openssl="it compares, and finds another name")
    in_subject = "C=CH, O=Example, CN=vpn, E=me@example.org"
    under("mail in the subject alone, permitted", limits([mail("example.org")]), in_subject, ())
    under("mail in the subject alone, not permitted", limits([mail("example.net")]), in_subject, (), **refused)
    under("mail in the subject alone, excluded", limits(None, [mail("example.org")]), in_subject, (), **refused)
    under("mail in the subject beside other names", limits([mail("example.net")]), in_subject, **refused)
    many = limits(None, [mail("a.b")] * 501)
    under("more mail addresses and subtrees than are compared", many, "C=CH" + ", E=m@a.c" * 501, verdict="TooComplex",
          openssl="it compares more")
    under("no mail address under a constraint of them", limits([mail("example.net")]))


def uris(cases):
    refused = {"verdict": "NameConstraint"}
    unlike = {**refused, "words": "cannot be compared"}
    under = cases.under
    permitted = lambda title, base, name, **more: under(f"URI: {title}", limits([uri(base)]), names_of_peer=[uri(name)], **more)
    permitted("the permitted host", "host.example.org", "https://host.example.org/path")
    permitted("another case and a port", "host.example.org", "HTTPS://Host.Example.ORG:4500/path?query#fragment")
    permitted("a user before the host", "host.example.org", "ftp://user:secret@host.example.org/",
              openssl="it takes the user for the host")
    permitted("below the permitted host", "host.example.org", "https://a.host.example.org/", **refused,
              words="permit only URI host.example.org, not its name URI https://a.host.example.org/")
    permitted("in the permitted domain", ".example.org", "https://a.host.example.org")
    permitted("the host of the domain's name", ".example.org", "https://example.org/", **refused)
    permitted("a host that ends like it", ".example.org", "https://notexample.org/", **refused)
    permitted("the host as a user", ".example.org", "https://a.example.org@example.net/", **refused)
    permitted("the host in the path", ".example.org", "https://example.net/a.example.org", **refused)
    permitted("the host in the query", ".example.org", "https://example.net?a.example.org", **refused,
              openssl="it takes a host without a path to its end")
    excluded = lambda title, base, name, **more: under(f"excluded URI: {title}", limits(None, [uri(base)]), names_of_peer=[uri(name)], **more)
    excluded("the host", "host.example.org", "https://host.example.org/", **refused, words="exclude URI host.example.org")
    excluded("another host", "host.example.org", "https://other.example.org/")
    excluded("in the domain", ".example.org", "https://host.example.org/", **refused)
    excluded("the host of the domain's name", ".example.org", "https://example.org/")
    excluded("no authority", "host.example.org", "urn:example:org", **unlike)
    lenient = "it takes any text for a host"
    excluded("an address of IPv4", "host.example.org", "https://192.0.2.7/", **unlike, openssl=lenient)
    excluded("an address of IPv6", "host.example.org", "https://[2001:db8::7]/", **unlike, openssl=lenient)
    excluded("a host of one label", "host.example.org", "https://localhost/", **unlike, openssl=lenient)
    under("no URI under a constraint of them", limits([uri("host.example.org")]))


def several(cases):
    refused = {"verdict": "NameConstraint"}
    example, sales, ops = (directory(f"C=CH, O=Example{more}") for more in ("", ", OU=Sales", ", OU=Ops"))
    upper = cases.ca(limits([example, mail(".example.org")]), "C=CH, O=Example, CN=Upper")
    lower = cases.ca(limits([sales, mail("a.example.org")]), "C=CH, O=Example, CN=Lower", upper)
    peer = lambda subject, issuer, *general: Entity(dn(subject), issuer, extensions=[names(HOST, *general)])
    chain = lambda subject, *general: [peer(subject, lower, *general), lower, upper]
    cases.add("two CAs: what both permit", chain("C=CH, O=Example, OU=Sales, CN=vpn", mail("me@a.example.org")))
    cases.add("two CAs: what the upper permits alone", chain("C=CH, O=Example, OU=Ops, CN=vpn"), **refused, words="of CN=Lower")
    cases.add("two CAs: a mail address that the upper permits alone",
              chain("C=CH, O=Example, OU=Sales, CN=vpn", mail("me@b.example.org")), **refused, words="of CN=Lower")
    wide = cases.ca(limits([directory("C=CH"), mail("example.net")]), "C=CH, O=Example, CN=Wide", upper)
    cases.add("two CAs: what the lower permits alone", [peer("C=CH, O=Else, CN=vpn", wide), wide, upper], **refused, words="of CN=Upper")
    cases.add("two CAs without a mail address that both permit",
              [peer("C=CH, O=Example, CN=vpn", wide, mail("me@example.net")), wide, upper], **refused, words="of CN=Upper")
    outside = cases.ca(limits([directory("C=CH")]), "C=CH, O=Else, CN=Outside", upper)
    cases.add("a CA outside of what the CA above permits",
              [peer("C=CH, O=Example, CN=vpn", outside), outside, upper], **refused, at=1, words="its name CN=Outside")
    plain = Entity(dn("C=CH, O=Example, CN=Plain"), upper, ca=True, extensions=[SIGNING])
    cases.add("constraints hold through a CA without any", [peer("C=CH, O=Else, CN=vpn", plain), plain, upper], **refused, words="of CN=Upper")
    cases.add("others in any order", [peer("C=CH, O=Example, OU=Sales, CN=vpn", lower), upper, lower])

    # Two certificates of one subject: the second is signed by the key of the first.
    narrow = cases.ca(limits([sales]), "C=CH, O=Example, CN=Narrow")
    key = ec.generate_private_key(ec.SECP256R1())
    by_narrow = [(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
                 (x509.AuthorityKeyIdentifier.from_issuer_public_key(narrow.key.public_key()), False)]
    again = Entity(narrow.name, narrow, key, ca=True, extensions=[SIGNING, *by_narrow])
    cases.add("a CA that is self-issued is not constrained by itself", [peer("C=CH, O=Example, OU=Sales, CN=vpn", again), again, narrow])
    cases.add("below a CA that is self-issued all else is", [peer("C=CH, O=Example, OU=Ops, CN=vpn", again), again, narrow], **refused)
    cases.add("a peer that is self-issued is constrained", [Entity(narrow.name, narrow, extensions=[names(HOST)]), narrow], **refused)
    more = Entity(narrow.name, narrow, key, ca=True, extensions=[SIGNING, *by_narrow, limits(None, [directory("C=CH, O=Example, OU=Sales, CN=vpn")])])
    cases.add("a CA that is self-issued constrains those below", [peer("C=CH, O=Example, OU=Sales, CN=vpn", more), more, narrow], **refused)

    root = Entity(dn("C=CH, O=Example, CN=Limiting root"), ca=True, extensions=[SIGNING, limits([sales], [mail("example.org")])])
    cases.add("a root permits", [peer("C=CH, O=Example, OU=Sales, CN=vpn", root)], root=root)
    cases.add("a root does not permit", [peer("C=CH, O=Example, OU=Ops, CN=vpn", root)], **refused, root=root, words="of CN=Limiting root")
    cases.add("a root excludes", [peer("C=CH, O=Example, OU=Sales, CN=vpn", root, mail("me@example.org"))], **refused, root=root)


def forms_of_the_library(cases):
    refused = {"verdict": "NameConstraint"}
    under = cases.under
    under("a domain beside a directory", limits([directory("C=CH, O=Example"), dns("example.net")]), **refused,
          words="of CN=Limited,O=Example,C=CH permit only domain name example.net, not its name domain name vpn.example.org")
    under("a domain and a directory", limits([directory("C=CH, O=Example"), dns("example.org")]))
    under("an excluded network beside a directory", limits([directory("C=CH, O=Example")], [network("192.0.2.0/24")]),
          names_of_peer=[address("192.0.2.7")], **refused, words="exclude address 192.0.2.0/255.255.255.0, and so its name address 192.0.2.7")
    under("otherName under a constraint of it", limits([other(1)]), names_of_peer=[HOST, other(1)], **refused, words="have otherName, which")
    under("otherName excluded, another is there", limits(None, [other(1)]), names_of_peer=[HOST, other(2)], **refused,
          openssl="it compares names of this form")
    under("a constraint of otherName, and none there", limits([other(1), directory("C=CH, O=Example")]))
    number = lambda last: x509.RegisteredID(x509.ObjectIdentifier(f"1.3.6.1.4.1.55555.{last}"))
    under("registeredID under a constraint of it", limits(None, [number(1)]), names_of_peer=[HOST, number(2)], **refused)


def encodings(cases):
    unreadable = {"verdict": "Unreadable", "at": 1}
    under = cases.under
    # GeneralSubtree: rfc822Name "a.b", then minimum [0] or maximum [1].
    under("rfc822Name a.b by hand", raw("3009a00730058103612e62"), names_of_peer=[mail("x@a.b")])
    under("a minimum", raw("300ca00a30088103612e62800101"), names_of_peer=[mail("x@a.b")], **unreadable)
    under("a minimum of 0, which is not to be encoded", raw("300ca00a30088103612e62800100"), names_of_peer=[mail("x@a.b")], **unreadable,
          openssl="it takes what BER allows")
    under("a maximum", raw("300ca00a30088103612e62810101"), names_of_peer=[mail("x@a.b")], **unreadable)
    under("bytes behind the constraints", raw("3009a00730058103612e620500"), **unreadable, openssl="it does not look at them")
    under("a subtree that is cut", raw("3009a00730058109612e62"), **unreadable)
    under("a subtree without a base", raw("3004a0023000"), **unreadable)
    under("a directory that is none", raw("3009a0073005a40304010a"), **unreadable)
    under("a mail address that is not ASCII", raw("3009a00730058103e1e2e3"), names_of_peer=[HOST], **unreadable,
          openssl="no mail address is there to be compared")
    under("a list that is neither permitted nor excluded", raw("3009a20730058103612e62"), **unreadable)
    under("X.400 addresses, and none there", raw("3006a0043002a300"))


def forgeries(cases):
    """A peer that changes the constraint of its CA's certificate, whose signature it cannot make."""
    subject = directory("C=CH, O=Example, CN=vpn")
    forge(cases, "a directory", subject, 0xA4, subject.value.public_bytes())
    forge(cases, "a mail address", mail("example.org"), 0x81, b"example.org")


def forge(cases, form, base, tag, encoded):
    ca = cases.ca(limits(None, [base]))
    peer = Entity(dn("C=CH, O=Example, CN=vpn"), ca, extensions=[names(HOST, mail("me@example.org"))])
    signed = ca.certificate.tbs_certificate_bytes
    at = signed.rindex(bytes([tag, len(encoded)]) + encoded)
    # ECDSA: from one signature follows another one over the same bytes by the same key.
    r, s = decode_dss_signature(ca.certificate.signature)
    other_signature = encode_dss_signature(r, ORDER_OF_P256 - s)
    cases.add(f"{form} is excluded", [peer, ca], "NameConstraint")
    cases.add(f"{form} is excluded, with another signature by the same key", [peer, certificate(signed, other_signature)],
              "NameConstraint")
    for turned, new_tag in [("X.400 addresses", 0xA3), ("URIs", 0x86)]:
        title = f"{form} is turned into {turned}"
        forged = signed[:at] + bytes([new_tag]) + signed[at + 1:]
        cases.add(f"{title}, alone", [peer, certificate(forged, ca.certificate.signature)], "Signature", 1)
        for how, signature in [("", ca.certificate.signature), (", with another signature", other_signature)]:
            one = certificate(forged, signature)
            cases.add(f"{title}{how}, before the CA's own", [peer, one, ca], "")
            cases.add(f"{title}{how}, behind the CA's own", [peer, ca, one], "")


def certificate(signed, signature):
    """By hand, by ecdsa-with-SHA256."""
    return tlv(0x30, signed + bytes.fromhex("300a06082a8648ce3d040302") + tlv(0x03, b"\0" + signature)).hex()


def tlv(tag, content):
    size = len(content)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def main():
    cases = Cases()
    for part in (directories, mailboxes, uris, several, forms_of_the_library, encodings, forgeries):
        part(cases)
    made = {"now": int(NOW.timestamp()), "cases": cases.made}
    Path(__file__).with_name("name_constraints.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""NIST's PKITS (public domain; PyPI `cryptography-vectors`) over our validation of paths.

    tests/ikev2/run         runs it too: `ok NAME` or `not ok NAME: why` for each test

Each end-entity certificate comes with every CA certificate that its issuers' names lead to, and all revocation lists,
one of which must cover each certificate. What differs from PKITS has its reason in DIFFERENT; a test there that no
longer differs fails too. All but two reasons are refusals of what PKITS accepts.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import cryptography_vectors

DATA = Path(cryptography_vectors.__file__).parent / "x509/PKITS_data"
# A day on which PKITS is valid: 2027-01-15.
NOW = 1_800_000_000
ROOT = "TrustAnchorRootCertificate.crt"
MAX_CHAIN = 16

DIFFERENT = {
    "DSA is not taken": """
        ValidDSAParameterInheritanceTest5 ValidDSASignaturesTest4""",
    "a CA with a key of its own for lists is not followed": """
        ValidSeparateCertificateandCRLKeysTest19""",
    "critical extensions about policies are refused": """
        ValidPolicyMappingTest11 ValidPolicyMappingTest12 ValidPolicyMappingTest13 ValidPolicyMappingTest14
        ValidPolicyMappingTest1 ValidPolicyMappingTest3 ValidPolicyMappingTest5 ValidPolicyMappingTest6
        ValidPolicyMappingTest9 ValidSelfIssuedinhibitAnyPolicyTest7 ValidSelfIssuedinhibitAnyPolicyTest9
        ValidSelfIssuedinhibitPolicyMappingTest7 ValidSelfIssuedrequireExplicitPolicyTest6
        ValidinhibitAnyPolicyTest2 ValidinhibitPolicyMappingTest2 ValidinhibitPolicyMappingTest4
        ValidrequireExplicitPolicyTest1 ValidrequireExplicitPolicyTest2 ValidrequireExplicitPolicyTest4""",
    "delta lists are not read": """
        InvaliddeltaCRLTest4 ValiddeltaCRLTest5""",
    "lists by another issuer, by reason or relative to it are not read": """
        ValidIDPwithindirectCRLTest22 ValidIDPwithindirectCRLTest24 ValidIDPwithindirectCRLTest25
        ValidcRLIssuerTest28 ValidcRLIssuerTest29 ValidcRLIssuerTest30 ValidcRLIssuerTest33
        ValiddistributionPointTest1 ValiddistributionPointTest4 ValiddistributionPointTest5
        ValiddistributionPointTest7 ValidonlySomeReasonsTest18 ValidonlySomeReasonsTest19""",
    "of two keys with one name the peer's chain has both, and the library stops at the first of them, or at its list": """
        ValidBasicSelfIssuedCRLSigningKeyTest6 ValidBasicSelfIssuedNewWithOldTest3
        ValidBasicSelfIssuedNewWithOldTest4 ValidBasicSelfIssuedOldWithNewTest1
        ValidDNnameConstraintsTest19
        ValidSelfIssuedpathLenConstraintTest15 ValidSelfIssuedpathLenConstraintTest17""",
    "rustls-webpki compares the names of issuers byte by byte": """
        ValidNameChainingCapitalizationTest5 ValidNameChainingWhitespaceTest3 ValidNameChainingWhitespaceTest4
        ValidRolloverfromPrintableStringtoUTF8StringTest10 ValidUTF8StringCaseInsensitiveMatchTest11""",
    "rustls-webpki takes no unique identifiers, which RFC 5280 4.1.2.8 forbids CAs to make": """
        ValidNameUIDsTest6""",
    "the date is no UTCTime of RFC 5280's profile to x509-cert": """
        Validpre2000UTCnotBeforeDateTest3""",
    "the end of the path is a CA, which a peer is not": """
        ValidonlyContainsCACertsTest13 ValidpathLenConstraintTest14 ValidpathLenConstraintTest8""",
    "the verdict depends on policies, which are not requested here": """
        AllCertificatesNoPoliciesTest2 AllCertificatesSamePoliciesTest10 AllCertificatesSamePoliciesTest13
        AllCertificatesanyPolicyTest11 AnyPolicyTest14 CPSPointerQualifierTest20 DifferentPoliciesTest12
        DifferentPoliciesTest3 DifferentPoliciesTest4 DifferentPoliciesTest5 DifferentPoliciesTest9
        UserNoticeQualifierTest15 UserNoticeQualifierTest16 UserNoticeQualifierTest17
        UserNoticeQualifierTest18 UserNoticeQualifierTest19""",
}


def tlv(data, at):
    """Tag, begin and end of the value at this place."""
    length, header = data[at + 1], 2
    if length & 0x80:
        header += length & 0x7F
        length = int.from_bytes(data[at + 2:at + header], "big")
    return data[at], at + header, at + header + length


def names(certificate):
    """Issuer and subject, so that case and blanks make no difference."""
    _, begin, _ = tlv(certificate, 0)
    _, at, end = tlv(certificate, begin)
    fields = []
    while at < end:
        tag, begin, after = tlv(certificate, at)
        if tag != 0xA0:
            fields.append(certificate[begin:after].lower().replace(b" ", b""))
        at = after
    return fields[2], fields[4]


def chain_of(certificate, cas):
    chain = [certificate]
    for one in chain:
        chain.extend(ca for ca in cas.get(names(one)[0], []) if ca not in chain)
    return chain[:MAX_CHAIN]


def main():
    certificates = {path.name: path.read_bytes() for path in sorted((DATA / "certs").iterdir())}
    lists = [path.read_bytes().hex() for path in sorted((DATA / "crls").iterdir())]
    cas = {}
    for name, certificate in certificates.items():
        if name != ROOT and not name.endswith("EE.crt"):
            cas.setdefault(names(certificate)[1], []).append(certificate)
    different = {name: why for why, tests in DIFFERENT.items() for name in tests.split()}
    ours = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    failed = count = 0
    for name, certificate in certificates.items():
        test = re.match(r"(.*Test\d+(subpart\d)?)EE\.crt$", name)
        if not test:
            continue
        chain = [one.hex() for one in chain_of(certificate, cas)]
        question = {"ask": "chain", "chain": chain, "root": certificates[ROOT].hex(), "lists": lists, "now": NOW}
        print(json.dumps(question), file=ours.stdin, flush=True)
        answer = json.loads(ours.stdout.readline())
        wanted = name.startswith("Valid") != (test[1] in different)
        good = answer["taken"] == wanted
        verdict = "taken" if answer["taken"] else "refused: " + answer["why"]
        print(f"ok PKITS {test[1]}" if good else f"not ok PKITS {test[1]}: {verdict}")
        failed += not good
        count += 1
    if count < 200:
        print(f"not ok PKITS: {count} tests")
    return 1 if failed or count < 200 else 0


if __name__ == "__main__":
    sys.exit(main())

"""Names of algorithms: in a proposal of swanctl.conf and esplanade.toml, and in charon's list of associations."""

import re

# The word, then what charon shows under encr-alg, encr-keysize, integ-alg, prf-alg, dh-group.
ENCRYPTION = [(r"aes(\d+)gcm(8|12|16)", "AES_GCM_{1}", 0), (r"aes(\d+)ccm(8|12|16)", "AES_CCM_{1}", 0),
              (r"aes(\d+)ctr", "AES_CTR", 0), (r"aes(\d+)", "AES_CBC", 0),
              (r"chacha20poly1305", "CHACHA20_POLY1305", None), (r"3des", "3DES_CBC", None)]
INTEGRITY = {"sha1": "HMAC_SHA1_96", "sha256": "HMAC_SHA2_256_128", "sha384": "HMAC_SHA2_384_192",
             "sha512": "HMAC_SHA2_512_256", "aesxcbc": "AES_XCBC_96", "aescmac": "AES_CMAC_96"}
PRF = {"prfsha1": "PRF_HMAC_SHA1", "prfsha256": "PRF_HMAC_SHA2_256", "prfsha384": "PRF_HMAC_SHA2_384",
       "prfsha512": "PRF_HMAC_SHA2_512", "prfaesxcbc": "PRF_AES128_XCBC", "prfaescmac": "PRF_AES128_CMAC"}
GROUP = {"x25519": "CURVE_25519", "ecp256": "ECP_256", "ecp384": "ECP_384", "ecp521": "ECP_521"}


def expected(proposal):
    """What charon must show of associations by a proposal that leaves no choice."""
    shown = {}
    for word in proposal.split("-"):
        shown |= one(word)
    return shown


def one(word):
    if word in INTEGRITY:
        return {"integ-alg": INTEGRITY[word]}
    if word in PRF:
        return {"prf-alg": PRF[word]}
    if word in GROUP or word.startswith("modp"):
        return {"dh-group": GROUP.get(word, f"MODP_{word[4:]}")}
    for pattern, name, size in ENCRYPTION:
        if found := re.fullmatch(pattern, word):
            made = {"encr-alg": name.format(*found.groups())}
            return made if size is None else made | {"encr-keysize": found[1]}
    raise ValueError(f"suites.py does not know {word}")


def differences(shown, proposal, without=()):
    """What is not as the proposal says; a first child SA has no group of its own."""
    wanted = {key: value for key, value in expected(proposal).items() if key not in without}
    return {key: f"{shown.get(key)} instead of {value}" for key, value in wanted.items() if shown.get(key) != value}

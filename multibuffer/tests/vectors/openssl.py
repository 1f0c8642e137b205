#!/usr/bin/env python3
"""Writes openssl.json: ciphertexts by OpenSSL (through the Python package `cryptography`) of what no published file covers.

Repeat with: python3 openssl.py > openssl.json
Keys, IVs and plaintexts come from SHA-256 in counter mode over a fixed label, so that the file can be made again byte for byte.
"""
import hashlib
import json
import warnings

warnings.simplefilter("ignore")
from cryptography.hazmat.decrepit.ciphers.algorithms import CAST5, Blowfish, TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM

try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import Camellia
except ImportError:
    from cryptography.hazmat.primitives.ciphers.algorithms import Camellia


def stream(label, length):
    out, counter = b"", 0
    while len(out) < length:
        out += hashlib.sha256(f"{label}/{counter}".encode()).digest()
        counter += 1
    return out[:length]


def block_cipher(name, make, mode, iv_len, nonce_len, key_lens, text_lens):
    for key_len in key_lens:
        for text_len in text_lens:
            label = f"{name}/{key_len}/{text_len}"
            key, iv = stream(label + "/key", key_len + nonce_len), stream(label + "/iv", iv_len)
            plain = stream(label + "/plain", text_len)
            encryptor = Cipher(make(key[:key_len]), mode(key[key_len:], iv)).encryptor()
            sealed = encryptor.update(plain) + encryptor.finalize()
            yield {"cipher": name, "key": key.hex(), "iv": iv.hex(), "aad": "", "plain": plain.hex(), "sealed": sealed.hex(), "icv_len": 0}


def aead(name, make, salt_len, key_lens, tag_lens, text_lens):
    for key_len in key_lens:
        for tag_len in tag_lens:
            for text_len in text_lens:
                label = f"{name}/{key_len}/{tag_len}/{text_len}"
                key, iv = stream(label + "/key", key_len + salt_len), stream(label + "/iv", 8)
                plain, aad = stream(label + "/plain", text_len), stream(label + "/aad", 8 + 4 * (text_len % 2))
                sealed = make(key[:key_len], tag_len).encrypt(key[key_len:] + iv, plain, aad)
                yield {"cipher": name, "key": key.hex(), "iv": iv.hex(), "aad": aad.hex(), "plain": plain.hex(), "sealed": sealed.hex(), "icv_len": tag_len}


def cbc(_nonce, iv):
    return modes.CBC(iv)


def ctr(nonce, iv):
    return modes.CTR(nonce + iv + b"\0\0\0\1")


BLOCKS_16 = [16, 32, 48, 112, 128, 272, 1424]
BLOCKS_8 = [8, 16, 24, 56, 64, 136, 1424]
BYTES = [0, 1, 13, 14, 15, 16, 17, 64, 300, 1409]
vectors = [
    *block_cipher("aes-cbc", algorithms.AES, cbc, 16, 0, [16, 24, 32], BLOCKS_16),
    *block_cipher("aes-ctr", algorithms.AES, ctr, 8, 4, [16, 24, 32], BYTES),
    *block_cipher("camellia-cbc", Camellia, cbc, 16, 0, [16, 24, 32], BLOCKS_16),
    *block_cipher("des-cbc", lambda key: TripleDES(key * 3), cbc, 8, 0, [8], BLOCKS_8),
    *block_cipher("3des-cbc", TripleDES, cbc, 8, 0, [24], BLOCKS_8),
    *block_cipher("blowfish-cbc", Blowfish, cbc, 8, 0, [5, 8, 16, 24, 56], BLOCKS_8),
    *block_cipher("cast128-cbc", CAST5, cbc, 8, 0, [5, 8, 10, 11, 16], BLOCKS_8),
    *aead("aes-ccm", lambda key, tag: AESCCM(key, tag), 3, [16, 24, 32], [8, 12, 16], BYTES),
    *aead("aes-gcm", lambda key, _tag: AESGCM(key), 4, [16, 24, 32], [16], BYTES),
]
print("[")
print(",\n".join(json.dumps(vector) for vector in vectors))
print("]")

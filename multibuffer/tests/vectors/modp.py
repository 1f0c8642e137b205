#!/usr/bin/env python3
"""Makes modp.json: Diffie-Hellman in the MODP groups of RFC 2409 and RFC 3526 by Python's own integers.

The primes are computed from the formula that both RFCs give beside the digits. Exponents come from a fixed seed; each case
is one whose secret begins with a zero byte, because that one has to be kept.
"""

import json
import random
from decimal import Decimal, getcontext
from pathlib import Path

# 2^n - 2^(n-64) - 1 + 2^64 * ([2^(n-130) pi] + k), RFC 2409 6.2 and RFC 3526 2 to 7.
GROUPS = {1024: 129093, 1536: 741804, 2048: 124476, 3072: 1690314, 4096: 240904, 6144: 929484, 8192: 4743158}
EXPONENT_BITS = {1024: 256, 1536: 256, 2048: 256, 3072: 320, 4096: 384, 6144: 448, 8192: 512}


def pi():
    """Machin's formula, to more digits than 8192 bits have."""
    getcontext().prec = 2600

    def arctan_inverse(x):
        total = term = Decimal(1) / x
        square, divisor, sign = x * x, 1, 1
        while abs(term) > Decimal(10) ** -2590:
            term /= square
            divisor += 2
            sign = -sign
            total += sign * term / divisor
        return total

    return 4 * (4 * arctan_inverse(Decimal(5)) - arctan_inverse(Decimal(239)))


def case(bits, prime, numbers):
    exponent_bits = EXPONENT_BITS[bits]
    draw = lambda: numbers.getrandbits(exponent_bits) | 1 << exponent_bits - 1
    first = draw()
    while True:
        second = draw()
        secret = pow(2, first * second, prime)
        if secret >> bits - 8 == 0:
            break
    digits = lambda number, of: f"{number:0{of // 4}x}"
    return {"bits": bits, "prime": digits(prime, bits),
            "exponents": [digits(first, exponent_bits), digits(second, exponent_bits)],
            "publics": [digits(pow(2, exponent, prime), bits) for exponent in (first, second)],
            "secret": digits(secret, bits)}


def main():
    numbers, circle = random.Random(7296), pi()
    cases = []
    for bits, addend in GROUPS.items():
        prime = 2**bits - 2**(bits - 64) - 1 + 2**64 * (int(2**(bits - 130) * circle) + addend)
        cases.append(case(bits, prime, numbers))
    Path(__file__).with_name("modp.json").write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""`--plane auto` on this machine: what it chooses is what the running kernel can do, whichever that is."""

from network.expect import expect
from network.gateway import Gateway
from network.sites import Sites, setkey_text

NAME = "auto on this machine's own kernel"
PROBE = ("ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x7777 mode tunnel "
         f"aead 'rfc4106(gcm(aes))' 0x{'77' * 20} 128 && ip xfrm state flush")


def judged(words):
    """The line of the only case, if the words choose it."""
    if not all(word in NAME for word in words):
        return
    try:
        yield f"ok {NAME}: {chosen()}"
    except Exception as error:
        yield f"not ok {NAME}: {type(error).__name__}: {' '.join(str(error).split())[:900]}"


def chosen():
    with Sites("ah") as sites:
        plane = "kernel" if sites.left.attempt(PROBE)[0] == 0 else "user"
        left = Gateway(sites.left, setkey_text("left", inner=(4,)), ("--plane", "auto")).ready()
        sites.start("right", inner=(4,))
        expect(sites.ping() == 3, f"no ping through the tunnel: {left.words()}")
        told = left.status()
        expect(told["plane"] == plane, f"plane {told['plane']}, where the kernel could serve as {plane}")
        for where, text in (("its output", left.words()), ("`status`", left.ask("status"))):
            expect(told["plane_reason"] in text, f"{where} does not say why ({told['plane_reason']}):\n{text}")
        return f"{plane}, {told['plane_reason'].replace(':', ',')}"

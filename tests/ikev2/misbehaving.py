"""What a gateway must do when its peer, or an attacker on the path, does not keep to RFC 7296.

Every case has a peer of its own, at an address of its own. The gateway responds; in CASES_AS_INITIATOR it begins.
"""

import os
import struct

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from scapy.contrib import ikev2 as layers

from network.expect import expect
from peer import (CREATE_CHILD_SA, IKE_AUTH, IKE_SA_INIT, INFORMATIONAL, RESPONSE, Silent, chain, errors,
                  esp_proposal, found, found_notify, ike_proposal, notify, parse, selector, transforms, unknown,
                  with_length)

UNKNOWN_TYPE = 200


def answer_of(peer, message):
    """The payloads of an answer in clear."""
    came = peer.response_to(message)
    return parse(came[16], came[28:])


def refused_init(peer, *allowed, silence=True, **changed):
    """IKE_SA_INIT must be refused by one of these errors, or by silence; no SA may come of it."""
    message = peer.plain(IKE_SA_INIT, 0, peer.init_payloads(**changed))
    try:
        answer = answer_of(peer, message)
    except Silent:
        expect(silence, "no answer")
        return None
    expect(not found(answer, layers.IKEv2_KE), "it was taken")
    expect(set(errors(answer)) <= set(allowed) and errors(answer), f"the answer: {errors(answer)}, allowed {allowed}")
    return answer


def still_alive(peer):
    expect(peer.alive(), "the IKE SA does not answer any more")


def silent_and_alive(peer, message):
    """A message that is not authentic changes nothing and draws no answer."""
    expect(peer.is_silent_after(message), "it was answered")
    still_alive(peer)


# The handshake as it should be.

def a_whole_exchange(bench, peer):
    peer.establish()
    expect(bench.target.is_up(), "the gateway does not count it as up")
    expect(peer.ping_inside("10.2.0.2", "10.1.0.2"), "no ping through the child SA")
    still_alive(peer)


def x25519_too(bench, peer):
    peer.group = 31
    peer.establish()
    expect(peer.ping_inside("10.2.0.2", "10.1.0.2"), "no ping through the child SA")


# IKE_SA_INIT.

def init_twice(_, peer):
    peer.init()
    again = peer_on_500(peer, lambda: peer.response_to(peer.init_request))
    expect(again == peer.init_response, "another answer to the same request")
    peer.authenticate()
    expect(peer.authentic, "no SA after a repeated request")


def peer_on_500(peer, action):
    kept, peer.port, peer.peer_port = (peer.port, peer.peer_port), 500, 500
    try:
        return action()
    finally:
        peer.port, peer.peer_port = kept


def unknown_critical_in_init(_, peer):
    answer = refused_init(peer, "UNSUPPORTED_CRITICAL_PAYLOAD", silence=False, extra=unknown(UNKNOWN_TYPE, True))
    data = found_notify(answer, "UNSUPPORTED_CRITICAL_PAYLOAD").notify
    expect(data == bytes([UNKNOWN_TYPE]), f"the type in the notification: {data.hex()}")


def unknown_payload_in_init(_, peer):
    peer.init(extra=unknown(UNKNOWN_TYPE, False))
    peer.authenticate()
    expect(peer.authentic, "no SA")


def no_proposal(_, peer):
    other = layers.IKEv2_Proposal(next_payload=0, proposal=1, proto=1, trans_nb=4,
                                  trans=transforms((1, 12, 192), (2, 2, 0), (3, 2, 0), (4, 19, 0)))
    refused_init(peer, "NO_PROPOSAL_CHOSEN", silence=False, sa=layers.IKEv2_SA(prop=other))


def another_group(_, peer):
    """The key exchange is of a group that the proposal has, but not the gateway's choice (RFC 7296 1.2)."""
    both = layers.IKEv2_Proposal(next_payload=0, proposal=1, proto=1, trans_nb=5,
                                 trans=transforms((1, 12, 128), (2, 5, 0), (3, 12, 0), (4, 19, 0), (4, 14, 0)))
    message = peer.plain(IKE_SA_INIT, 0, peer.init_payloads(sa=layers.IKEv2_SA(prop=both),
                                                            ke=layers.IKEv2_KE(group=14, ke=os.urandom(256))))
    answer = answer_of(peer, message)
    asked = found_notify(answer, "INVALID_KE_PAYLOAD")
    expect(asked and asked.notify == struct.pack("!H", 19), f"the answer: {errors(answer)}")


def key_exchange_of_wrong_size(_, peer):
    refused_init(peer, "INVALID_SYNTAX", "INVALID_KE_PAYLOAD", "NO_PROPOSAL_CHOSEN",
                 ke=layers.IKEv2_KE(group=19, ke=os.urandom(63)))


def point_off_the_curve(_, peer):
    refused_init(peer, "INVALID_SYNTAX", "INVALID_KE_PAYLOAD", "NO_PROPOSAL_CHOSEN",
                 ke=layers.IKEv2_KE(group=19, ke=b"\1" * 64))


def zero_point(bench, peer):
    """The secret of this exchange is zero (RFC 8031 3.2); whether it is refused at once or before IKE_AUTH is the gateway's."""
    peer.group = 31
    peer.init_request = peer.plain(IKE_SA_INIT, 0, peer.init_payloads(ke=layers.IKEv2_KE(group=31, ke=bytes(32))))
    try:
        peer.init_response = peer.response_to(peer.init_request)
        answer = parse(peer.init_response[16], peer.init_response[28:])
        if not found(answer, layers.IKEv2_KE):
            return
        peer.secret_of_exchange = bytes(32)
        peer.agree(answer, peer.init_response)
        peer.authenticate()
    except Silent:
        pass
    expect(not bench.target.is_up(), "an SA came up whose secret is public")


def short_nonce(_, peer):
    refused_init(peer, "INVALID_SYNTAX", nonce=layers.IKEv2_Nonce(nonce=os.urandom(15)))


def long_nonce(_, peer):
    refused_init(peer, "INVALID_SYNTAX", nonce=layers.IKEv2_Nonce(nonce=os.urandom(257)))


def no_nonce(_, peer):
    refused_init(peer, "INVALID_SYNTAX", nonce=None)


def two_nonces(_, peer):
    refused_init(peer, "INVALID_SYNTAX", extra=layers.IKEv2_Nonce(nonce=os.urandom(32)))


def no_key_exchange(_, peer):
    refused_init(peer, "INVALID_SYNTAX", "INVALID_KE_PAYLOAD", "NO_PROPOSAL_CHOSEN", ke=None)


def major_version_3(_, peer):
    message = peer.plain(IKE_SA_INIT, 0, peer.init_payloads(), version=0x30)
    peer.send(message)
    try:
        came = peer.receive(timeout=1)
    except Silent:
        return
    answer = parse(came[16], came[28:])
    expect(came[17] >> 4 == 2 and errors(answer) == ["INVALID_MAJOR_VERSION"], f"the answer: {errors(answer)}")


def minor_version_9(_, peer):
    payloads = peer.init_payloads()
    peer.init_request = peer.plain(IKE_SA_INIT, 0, payloads, version=0x29)
    peer.init_response = peer.response_to(peer.init_request)
    expect(peer.init_response[17] == 0x20, f"the version of the answer: {peer.init_response[17]:#x}")
    peer.agree(parse(peer.init_response[16], peer.init_response[28:]), peer.init_response)
    peer.authenticate()
    expect(peer.authentic, "no SA")


def init_with_number_5(_, peer):
    expect(peer.is_silent_after(peer.plain(IKE_SA_INIT, 5, peer.init_payloads())), "it was answered")


def init_with_lengths(_, peer):
    """Header lengths that are not the datagram's, and datagrams that are cut anywhere."""
    whole = peer.plain(IKE_SA_INIT, 0, peer.init_payloads())
    for length in (0, 27, 28, len(whole) - 1, len(whole) + 1, 0xFFFFFFFF):
        peer.send(whole[:24] + struct.pack("!I", length) + whole[28:])
    for cut in range(0, len(whole), 7):
        peer.send(whole[:cut])
        if cut >= 28:
            peer.send(with_length(whole[:cut]))
    drain(peer)


def init_of_garbage(_, peer):
    for size in (1, 4, 28, 29, 100, 1400):
        peer.send(os.urandom(size))
        peer.send(with_length(peer.spi + bytes(8) + b"\x21\x20\x22\x08" + bytes(4) + bytes(4) + os.urandom(size)))
    drain(peer)


def drain(peer):
    """Answers to broken messages may be errors; none may come later."""
    try:
        while True:
            came = peer.receive(timeout=0.3)
            expect(came[16] == 41, f"a broken message was answered by {came.hex()}")
    except Silent:
        pass


# IKE_AUTH.

def auth_twice(_, peer):
    peer.establish()
    again = peer.response_to(peer.auth_request)
    expect(again == peer.auth_response, "another answer to the same request")
    still_alive(peer)


def auth_forged_first(_, peer):
    """RFC 7296 2.21.2: what is not authentic must not end the attempt."""
    peer.init()
    forged = bytearray(peer.sealed(IKE_AUTH, 1, peer.auth_payloads()))
    forged[-1] ^= 1
    expect(peer.is_silent_after(bytes(forged)), "a forged IKE_AUTH was answered")
    peer.authenticate()
    expect(peer.authentic, "a forged message ended the attempt")


def another_secret(bench, peer):
    peer.secret = b"not the secret that was agreed on"
    peer.init()
    answer = peer.authenticate()
    expect(errors(answer) == ["AUTHENTICATION_FAILED"], f"the answer: {errors(answer)}")
    expect(not bench.target.is_up(), "it is up")


def another_identity(bench, peer):
    peer.identity = b"someone-else.example"
    peer.init()
    answer = peer.authenticate()
    expect(errors(answer) == ["AUTHENTICATION_FAILED"], f"the answer: {errors(answer)}")
    expect(not bench.target.is_up(), "it is up")


def another_peer_is_named(bench, peer):
    peer.peer_identity = b"someone-else.example"
    peer.init()
    answer = peer.authenticate()
    expect(errors(answer) == ["AUTHENTICATION_FAILED"], f"the answer: {errors(answer)}")
    expect(not bench.target.is_up(), "it is up")


def auth_without_auth(bench, peer):
    """Without EAP there is nothing to go on with."""
    peer.init()
    peer.auth_request = peer.sealed(IKE_AUTH, 1, peer.auth_payloads(auth=None))
    try:
        answer = peer.opened(peer.response_to(peer.auth_request))
        expect(set(errors(answer)) & {"AUTHENTICATION_FAILED", "INVALID_SYNTAX", "NO_PROPOSAL_CHOSEN"},
               f"the answer: {errors(answer)}")
    except Silent:
        pass
    expect(not bench.target.is_up(), "it is up")


def unknown_critical_in_auth(bench, peer):
    peer.init()
    answer = peer.authenticate(extra=unknown(UNKNOWN_TYPE, True))
    expect(errors(answer) == ["UNSUPPORTED_CRITICAL_PAYLOAD"], f"the answer: {errors(answer)}")
    expect(not bench.target.is_up(), "it is up")


def foreign_selectors(bench, peer):
    """The IKE SA comes up, its child is refused."""
    peer.init()
    answer = peer.authenticate(networks=("10.77.0.0", "10.78.0.0"))
    expect("TS_UNACCEPTABLE" in errors(answer), f"the answer: {errors(answer)}")
    expect(not bench.target.is_up(), "a child is up")


def foreign_esp(bench, peer):
    peer.init()
    rows = transforms((1, 20, 192), (5, 0, 0))
    other = layers.IKEv2_Proposal(next_payload=0, proposal=1, proto=3, SPI=peer.esp_spi, trans_nb=2, trans=rows)
    answer = peer.authenticate(sa=layers.IKEv2_SA(prop=other))
    expect("NO_PROPOSAL_CHOSEN" in errors(answer), f"the answer: {errors(answer)}")


# An established IKE SA.

def wrong_check_value(_, peer):
    peer.establish()
    message = bytearray(peer.sealed(INFORMATIONAL, peer.next_id, []))
    message[-1] ^= 0x80
    silent_and_alive(peer, bytes(message))


def changed_ciphertext(_, peer):
    peer.establish()
    message = bytearray(peer.sealed(INFORMATIONAL, peer.next_id, []))
    message[50] ^= 1
    silent_and_alive(peer, bytes(message))


def changed_header(_, peer):
    """The header is authentic too: exchange type, flags and message ID of a sealed message."""
    peer.establish()
    message = peer.sealed(INFORMATIONAL, peer.next_id, [layers.IKEv2_Delete(proto=1, SPIsize=0, SPInum=0)])
    for at in (18, 19, 23):
        changed = bytearray(message)
        changed[at] ^= 1
        expect(peer.is_silent_after(bytes(changed)), f"answered with byte {at} changed")
    still_alive(peer)


def truncated(_, peer):
    peer.establish()
    message = peer.sealed(INFORMATIONAL, peer.next_id, [notify("INITIAL_CONTACT")])
    for cut in (28, 30, 32, 40, 48, len(message) - 16, len(message) - 1):
        peer.send(message[:cut])
        peer.send(with_length(message[:cut]))
    expect(peer.is_silent_after(message[:-1]), f"answered: {getattr(peer, 'broke_silence', b'').hex()}")
    still_alive(peer)


def wrong_padding(_, peer):
    """A pad length beyond the payload, authentic all the same."""
    peer.establish()
    message = peer.seal(INFORMATIONAL, peer.next_id, 46, b"", 0, b"", False, padding=200)
    peer.send(message)
    try:
        answer = peer.opened(peer.receive(timeout=1))
        expect(errors(answer) == ["INVALID_SYNTAX"], f"the answer: {errors(answer)}")
    except Silent:
        pass
    expect(bench_process_lives(peer), "the gateway ended")


def bench_process_lives(peer):
    return peer.bench.target.process.poll() is None


def old_number(_, peer):
    peer.establish()
    for _ in range(3):
        still_alive(peer)
    expect(peer.is_silent_after(peer.sealed(INFORMATIONAL, 2, [])), "a request of long ago was answered anew")
    still_alive(peer)


def last_request_again(_, peer):
    """The same request again is answered by the same bytes, and done once."""
    peer.establish()
    request = peer.sealed(INFORMATIONAL, peer.next_id, [])
    peer.next_id += 1
    first = peer.response_to(request)
    expect(peer.response_to(request) == first, "another answer to the same request")
    still_alive(peer)


def far_number(_, peer):
    peer.establish()
    message = peer.sealed(INFORMATIONAL, peer.next_id + 50, [])
    expect(peer.is_silent_after(message), "a request beyond the window was answered")
    still_alive(peer)


def response_to_nothing(_, peer):
    peer.establish()
    message = peer.sealed(INFORMATIONAL, 0, [layers.IKEv2_Delete(proto=1, SPIsize=0, SPInum=0)], response=True)
    silent_and_alive(peer, message)


def reflected(_, peer):
    """Its own response, sent back to it."""
    peer.establish()
    response = peer.response_to(peer.sealed(INFORMATIONAL, peer.next_id, []))
    peer.next_id += 1
    silent_and_alive(peer, response)


def wrong_initiator_flag(_, peer):
    peer.establish()
    message = peer.sealed(INFORMATIONAL, peer.next_id, [], flags=0)
    expect(peer.is_silent_after(message), "it was answered")
    still_alive(peer)


def unknown_spi(_, peer):
    """RFC 7296 2.21.4: at most a notification, and no state."""
    peer.establish()
    kept, peer.peer_spi = peer.peer_spi, os.urandom(8)
    peer.send(peer.sealed(INFORMATIONAL, peer.next_id, []))
    try:
        came = peer.receive(timeout=0.5)
        expect(errors(parse(came[16], came[28:])) == ["INVALID_IKE_SPI"], "another answer than INVALID_IKE_SPI")
    except Silent:
        pass
    peer.peer_spi = kept
    still_alive(peer)


def unknown_critical_in_informational(_, peer):
    peer.establish()
    answer = peer.ask(INFORMATIONAL, [unknown(UNKNOWN_TYPE, True)])
    expect(errors(answer) == ["UNSUPPORTED_CRITICAL_PAYLOAD"], f"the answer: {errors(answer)}")
    still_alive(peer)


def unknown_payload_in_informational(_, peer):
    peer.establish()
    answer = peer.ask(INFORMATIONAL, [unknown(UNKNOWN_TYPE, False)])
    expect(not errors(answer), f"the answer: {errors(answer)}")
    still_alive(peer)


def unknown_notification(_, peer):
    peer.establish()
    answer = peer.ask(INFORMATIONAL, [layers.IKEv2_Notify(type=40000, notify=b"what is this"),
                                      layers.IKEv2_Notify(type=8000, notify=b"an error of tomorrow")])
    expect(not errors(answer), f"the answer: {errors(answer)}")


def broken_inside(_, peer):
    """A payload inside an authentic message that goes past its end: fatal, or refused, and never a crash (2.21.3)."""
    peer.establish()
    body = struct.pack("!BBH", 0, 0, 200) + b"short"
    peer.send(peer.sealed(INFORMATIONAL, peer.next_id, (41, body)))
    try:
        answer = peer.opened(peer.receive(timeout=1))
        expect(errors(answer) == ["INVALID_SYNTAX"], f"the answer: {errors(answer)}")
    except Silent:
        pass
    expect(bench_process_lives(peer), "the gateway ended")


def delete_of_nothing(_, peer):
    """RFC 7296 1.4.1: deleting what is not there is answered, and changes nothing."""
    peer.establish()
    answer = peer.ask(INFORMATIONAL, [layers.IKEv2_Delete(proto=3, SPIsize=4, SPInum=1, SPI=[os.urandom(4)])])
    expect(not errors(answer), f"the answer: {errors(answer)}")
    still_alive(peer)
    expect(peer.ping_inside("10.2.0.2", "10.1.0.2"), "the child SA is gone")


def delete_of_the_child(bench, peer):
    peer.establish()
    answer = peer.ask(INFORMATIONAL, [layers.IKEv2_Delete(proto=3, SPIsize=4, SPInum=1, SPI=[peer.esp_spi])])
    deleted = found(answer, layers.IKEv2_Delete)
    expect(deleted and list(deleted.SPI) == [peer.peer_esp_spi], "the answer does not delete the other direction")
    expect(not bench.target.is_up(), "the child is still there")


def delete_of_the_ike_sa(bench, peer):
    peer.establish()
    answer = peer.ask(INFORMATIONAL, [layers.IKEv2_Delete(proto=1, SPIsize=0, SPInum=0)])
    expect(answer == [], f"the answer: {answer}")
    expect(not bench.target.is_up(), "it is still up")


def rekey_of_nothing(_, peer):
    peer.establish()
    answer = peer.ask(CREATE_CHILD_SA, child_payloads(notify("REKEY_SA", protocol=3, spi=os.urandom(4))))
    expect("CHILD_SA_NOT_FOUND" in errors(answer), f"the answer: {errors(answer)}")
    still_alive(peer)


def child_payloads(*first, ts=True):
    nonce = os.urandom(32)
    return [*first, layers.IKEv2_SA(prop=esp_proposal(os.urandom(4))), layers.IKEv2_Nonce(nonce=nonce),
            *([layers.IKEv2_TSi(traffic_selector=[selector("10.2.0.0")]),
               layers.IKEv2_TSr(traffic_selector=[selector("10.1.0.0")])] if ts else [])]


def child_without_selectors(_, peer):
    peer.establish()
    peer.send(peer.sealed(CREATE_CHILD_SA, peer.next_id, child_payloads(ts=False)))
    try:
        answer = peer.opened(peer.receive(timeout=1))
        expect(errors(answer) and not found(answer, layers.IKEv2_SA), f"the answer: {errors(answer)}")
    except Silent:
        pass
    expect(bench_process_lives(peer), "the gateway ended")


def rekey_with_short_nonce(_, peer):
    peer.establish()
    payloads = child_payloads(notify("REKEY_SA", protocol=3, spi=peer.esp_spi))
    payloads[2] = layers.IKEv2_Nonce(nonce=bytes(8))
    peer.send(peer.sealed(CREATE_CHILD_SA, peer.next_id, payloads))
    try:
        answer = peer.opened(peer.receive(timeout=1))
        expect(errors(answer) and not found(answer, layers.IKEv2_SA), f"the answer: {errors(answer)}")
    except Silent:
        pass
    expect(bench_process_lives(peer), "the gateway ended")


def ike_rekey_without_key_exchange(_, peer):
    peer.establish()
    proposal = ike_proposal(19)
    proposal.SPI = os.urandom(8)
    answer = peer.ask(CREATE_CHILD_SA, [layers.IKEv2_SA(prop=proposal), layers.IKEv2_Nonce(nonce=os.urandom(32))])
    expect(errors(answer), "a rekey of the IKE SA without key exchange was taken")


def second_init_in_the_sa(_, peer):
    """IKE_SA_INIT and IKE_AUTH of an SA that is up already."""
    peer.establish()
    peer.send(peer.sealed(IKE_AUTH, peer.next_id, peer.auth_payloads()))
    try:
        answer = peer.opened(peer.receive(timeout=1))
        expect(not found(answer, layers.IKEv2_SA), "a second IKE_AUTH was taken")
    except Silent:
        pass
    expect(bench_process_lives(peer), "the gateway ended")


# Fragments.

def auth_in_fragments(peer, order=lambda parts: parts):
    peer.init()
    request = peer.fragments(IKE_AUTH, 1, peer.auth_payloads(), 60)
    expect(len(request) >= 4, "too few fragments to be a test")
    for each in order(request):
        peer.send(each)
    peer.next_id = 2
    return request


def taken(peer):
    answer = peer.opened(peer.receive(lambda came: came[19] & RESPONSE and came[18] == IKE_AUTH))
    peer.accept(answer)
    expect(getattr(peer, "authentic", False), "no SA")
    still_alive(peer)


def fragments_in_order(_, peer):
    auth_in_fragments(peer)
    taken(peer)


def fragments_reversed(_, peer):
    auth_in_fragments(peer, lambda parts: parts[::-1])
    taken(peer)


def fragments_repeated(_, peer):
    auth_in_fragments(peer, lambda parts: [part for each in parts[:-1] for part in (each, each)] + parts[-1:])
    taken(peer)


def fragment_missing(_, peer):
    parts = auth_in_fragments(peer, lambda parts: parts[:-1])
    expect(peer.is_silent_after(parts[0]), "answered without the last fragment")
    peer.send(parts[-1])
    taken(peer)


def fragment_forged(_, peer):
    """RFC 7383 2.6: a fragment that is not authentic is dropped, the true one is taken after it."""
    def order(parts):
        forged = bytearray(parts[1])
        forged[-1] ^= 1
        return [parts[0], bytes(forged), *parts[1:]]
    auth_in_fragments(peer, order)
    taken(peer)


def fragment_zero(_, peer):
    """Numbers that cannot be: 0, and one above the total."""
    peer.init()
    first, body = chain(peer.auth_payloads())
    for number, total in ((0, 2), (3, 2), (0, 0)):
        peer.send(peer.seal(IKE_AUTH, 1, 53, struct.pack("!HH", number, total), first, body, False))
    drain_sealed(peer)
    peer.authenticate()
    expect(peer.authentic, "no SA after impossible fragments")


def drain_sealed(peer):
    try:
        came = peer.receive(timeout=0.3)
    except Silent:
        return
    expect(False, f"an impossible fragment was answered: {came.hex()[:80]}")


# The gateway begins, this peer responds.

def begun(bench, peer, count=1):
    """The gateway's IKE_SA_INIT requests, as they come."""
    bench.begin()
    return [peer.receive(lambda came: came[18] == IKE_SA_INIT and not came[19] & RESPONSE, 10) for _ in range(count)]


def responder(bench, peer):
    request, = begun(bench, peer)
    peer.answer_init(request)
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH))
    expect(peer.authentic, "the gateway's AUTH is wrong")
    expect(bench.came_up(), "the gateway does not come up")
    expect(peer.ping_inside("10.2.0.2", "10.1.0.2"), "no ping through the child SA")


def init_dropped(bench, peer):
    first, second, third = begun(bench, peer, 3)
    expect(first == second == third, "a repeated request has other bytes")
    peer.answer_init(first)
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH))
    expect(bench.came_up(), "the gateway does not come up")


def auth_dropped(bench, peer):
    request, = begun(bench, peer)
    peer.answer_init(request)
    first, second = (peer.receive(lambda came: came[18] == IKE_AUTH, 10) for _ in range(2))
    expect(first == second, "a repeated request has other bytes")
    peer.answer_auth(second)
    expect(bench.came_up(), "the gateway does not come up")


def cookie_asked(bench, peer):
    request, = begun(bench, peer)
    head = {"init_SPI": request[:8], "resp_SPI": bytes(8), "exch_type": IKE_SA_INIT, "flags": RESPONSE, "id": 0}
    first, body = chain([notify("COOKIE", b"a cookie of this test")])
    peer.reply(with_length(bytes(layers.IKEv2(next_payload=first, **head)) + body))
    again = peer.receive(lambda came: came[18] == IKE_SA_INIT and came != request, 10)
    payloads = parse(again[16], again[28:])
    cookie = payloads[0]
    expect(cookie.type == 16390 and cookie.notify == b"a cookie of this test", "COOKIE is not the first payload")
    old = parse(request[16], request[28:])
    same = [bytes(each) for each in payloads[1:]] == [bytes(each) for each in old]
    expect(same, "more was changed than the cookie added")
    peer.answer_init(again)
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH))
    expect(peer.authentic and bench.came_up(), "it does not come up after a cookie")


def forged_refusal(bench, peer):
    """RFC 7296 2.21.1: an error that is not authentic must not end the attempt at once."""
    request, = begun(bench, peer)
    head = {"init_SPI": request[:8], "resp_SPI": bytes(8), "exch_type": IKE_SA_INIT, "flags": RESPONSE, "id": 0}
    first, body = chain([notify("NO_PROPOSAL_CHOSEN")])
    peer.reply(with_length(bytes(layers.IKEv2(next_payload=first, **head)) + body))
    peer.answer_init(request)
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH))
    expect(bench.came_up(), "a forged refusal ended the attempt")


def forged_auth_answer(bench, peer):
    request, = begun(bench, peer)
    peer.answer_init(request)
    auth = peer.receive(lambda came: came[18] == IKE_AUTH)
    forged = bytearray(peer.sealed(IKE_AUTH, 1, [notify("AUTHENTICATION_FAILED")], response=True))
    forged[-1] ^= 1
    peer.reply(bytes(forged))
    peer.answer_auth(auth)
    expect(bench.came_up(), "a forged answer ended the attempt")


def responder_with_another_secret(bench, peer):
    peer.secret = b"not the secret that was agreed on"
    request, = begun(bench, peer)
    peer.answer_init(request)
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH))
    expect(not bench.came_up(2), "it came up")


def responder_of_another_name(bench, peer):
    peer.identity = b"someone-else.example"
    request, = begun(bench, peer)
    peer.answer_init(request)
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH))
    expect(not bench.came_up(2), "it came up")


def more_selectors_than_asked(bench, peer):
    """A responder may narrow and never widen (RFC 7296 2.9)."""
    request, = begun(bench, peer)
    peer.answer_init(request)
    wide = layers.IPv4TrafficSelector(IP_protocol_ID=0, starting_address_v4="0.0.0.0",
                                      ending_address_v4="255.255.255.255")
    peer.answer_auth(peer.receive(lambda came: came[18] == IKE_AUTH), tsr=layers.IKEv2_TSr(traffic_selector=[wide]))
    if bench.came_up(2):
        expect(bench.target.selectors() == (["10.1.0.0/24"], ["10.2.0.0/24"]), "selectors wider than the request were taken")


def other_proposal_chosen(bench, peer):
    """A suite that was never offered (RFC 7296 2.7: the initiator must check)."""
    request, = begun(bench, peer)
    other = layers.IKEv2_Proposal(next_payload=0, proposal=1, proto=1, trans_nb=4,
                                  trans=transforms((1, 12, 256), (2, 5, 0), (3, 12, 0), (4, 19, 0)))
    peer.answer_init(request, sa=layers.IKEv2_SA(prop=other))
    try:
        peer.receive(lambda came: came[18] == IKE_AUTH, 2)
    except Silent:
        return
    expect(False, "it went on with a suite that it had not offered")


def point_off_the_curve_in_the_answer(bench, peer):
    request, = begun(bench, peer)
    peer.answer_init(request, ke=layers.IKEv2_KE(group=19, ke=b"\1" * 64))
    try:
        peer.receive(lambda came: came[18] == IKE_AUTH, 2)
    except Silent:
        return
    expect(False, "it went on with a point that is not on the curve")


CASES = {
    "a whole exchange carries traffic": a_whole_exchange,
    "X25519 carries traffic": x25519_too,
    "IKE_SA_INIT twice is answered by the same bytes": init_twice,
    "an unknown critical payload in IKE_SA_INIT is named": unknown_critical_in_init,
    "an unknown payload in IKE_SA_INIT is passed over": unknown_payload_in_init,
    "no common suite": no_proposal,
    "another group is asked for": another_group,
    "a key exchange of a wrong size": key_exchange_of_wrong_size,
    "a point that is not on the curve": point_off_the_curve,
    "an X25519 point of zeroes": zero_point,
    "a nonce of 15 bytes": short_nonce,
    "a nonce of 257 bytes": long_nonce,
    "no nonce": no_nonce,
    "two nonces": two_nonces,
    "no key exchange": no_key_exchange,
    "major version 3": major_version_3,
    "minor version 9 is taken as 2.0": minor_version_9,
    "IKE_SA_INIT with message ID 5": init_with_number_5,
    "IKE_SA_INIT of wrong lengths": init_with_lengths,
    "IKE_SA_INIT of garbage": init_of_garbage,
    "IKE_AUTH twice is answered by the same bytes": auth_twice,
    "a forged IKE_AUTH before the true one": auth_forged_first,
    "another secret": another_secret,
    "another identity": another_identity,
    "another peer is named": another_peer_is_named,
    "IKE_AUTH without AUTH": auth_without_auth,
    "an unknown critical payload in IKE_AUTH": unknown_critical_in_auth,
    "foreign selectors leave the IKE SA": foreign_selectors,
    "a foreign ESP suite": foreign_esp,
    "a wrong check value": wrong_check_value,
    "a changed ciphertext": changed_ciphertext,
    "a changed header": changed_header,
    "a truncated encrypted payload": truncated,
    "padding beyond the payload": wrong_padding,
    "an old message ID": old_number,
    "the last request again": last_request_again,
    "a message ID beyond the window": far_number,
    "a response to no request": response_to_nothing,
    "its own response comes back": reflected,
    "the flag of the other role": wrong_initiator_flag,
    "an unknown SPI": unknown_spi,
    "an unknown critical payload in INFORMATIONAL": unknown_critical_in_informational,
    "an unknown payload in INFORMATIONAL is passed over": unknown_payload_in_informational,
    "unknown notifications are passed over": unknown_notification,
    "a broken payload inside": broken_inside,
    "a delete of nothing": delete_of_nothing,
    "a delete of the child SA": delete_of_the_child,
    "a delete of the IKE SA": delete_of_the_ike_sa,
    "a rekey of nothing": rekey_of_nothing,
    "a child SA without selectors": child_without_selectors,
    "a rekey with a nonce of 8 bytes": rekey_with_short_nonce,
    "a rekey of the IKE SA without key exchange": ike_rekey_without_key_exchange,
    "a second IKE_AUTH": second_init_in_the_sa,
    "fragments in order": fragments_in_order,
    "fragments reversed": fragments_reversed,
    "fragments repeated": fragments_repeated,
    "a fragment that comes late": fragment_missing,
    "a forged fragment": fragment_forged,
    "fragments of impossible numbers": fragment_zero,
}
CASES_AS_INITIATOR = {
    "it begins, and traffic passes": responder,
    "it begins, its first requests are dropped": init_dropped,
    "it begins, its IKE_AUTH is dropped": auth_dropped,
    "it begins, a cookie is asked for": cookie_asked,
    "it begins, a forged refusal comes first": forged_refusal,
    "it begins, a forged answer to IKE_AUTH comes first": forged_auth_answer,
    "it begins, the responder has another secret": responder_with_another_secret,
    "it begins, the responder has another name": responder_of_another_name,
    "it begins, the responder widens the selectors": more_selectors_than_asked,
    "it begins, the responder chooses what was not offered": other_proposal_chosen,
    "it begins, the responder's point is not on the curve": point_off_the_curve_in_the_answer,
}

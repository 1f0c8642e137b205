"""A sample of tests/ikev2/measure-rekeys: many rekeys, from both sides at once, while IKE messages are lost."""

from ikev2.rekeys import measure
from network.expect import expect


def rekeys_that_collide_and_are_sent_again_lose_nothing():
    told = measure(100, 10, permille=20, rate=1000)
    expect(told["child rekeys"] >= 100 and told["IKE rekeys"] >= 10, f"too few rekeys: {told}")
    harm = [told["lost"], told["duplicated"], told["reordered"]]
    expect(harm == [0, 0, 0], f"of {told['sent']} frames lost, doubled, reordered: {harm}: {told}")
    return (f"{told['child rekeys']} child and {told['IKE rekeys']} IKE rekeys, {told['redundant child SAs']} collisions, "
            f"{told['IKE messages lost']} messages lost, {told['sent']} frames, none lost")


CASES = {"100 child and 10 IKE rekeys at once from both sides, 2 % of IKE messages lost":
         rekeys_that_collide_and_are_sent_again_lose_nothing}

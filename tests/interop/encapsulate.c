/* Runs in the guest: asks its kernel to take ESP out of UDP port 4500, IPv4 and IPv6, and waits.
 * The kernel decapsulates only for a socket that asked for it, and no stock tool asks. */
#include <netinet/in.h>
#include <netinet/udp.h>
#include <linux/xfrm.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 4500
#define IN 0
#define OUT 1
#define ESP_IN_UDP 2 /* UDP_ENCAP_ESPINUDP */

/* In transport mode the addresses of the datagram are those of the policy: without a policy of its own the socket
 * would be denied it, because it is not protected until it has been decapsulated. */
static int bypass(int s, sa_family_t family, unsigned char direction) {
    struct xfrm_userpolicy_info policy = {.sel = {.family = family}, .dir = direction, .action = XFRM_POLICY_ALLOW};
    if (family == AF_INET6)
        return setsockopt(s, IPPROTO_IPV6, IPV6_XFRM_POLICY, &policy, sizeof policy);
    return setsockopt(s, IPPROTO_IP, IP_XFRM_POLICY, &policy, sizeof policy);
}

static int open_port(const struct sockaddr *address, socklen_t length) {
    int on = 1, kind = ESP_IN_UDP;
    int s = socket(address->sa_family, SOCK_DGRAM, 0);
    if (s < 0)
        return -1;
    if (address->sa_family == AF_INET6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(s, address, length) != 0)
        return -1;
    if (bypass(s, address->sa_family, IN) != 0 || bypass(s, address->sa_family, OUT) != 0)
        return -1;
    return setsockopt(s, IPPROTO_UDP, UDP_ENCAP, &kind, sizeof kind);
}

int main(void) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    if (open_port((struct sockaddr *)&four, sizeof four) != 0)
        return 1;
    if (open_port((struct sockaddr *)&six, sizeof six) != 0)
        return 2;
    for (;;)
        pause();
}

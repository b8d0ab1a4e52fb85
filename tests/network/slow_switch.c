/* A switch in user space in place of a bridge: each packet is lost with a probability, or forwarded after a delay.
   Arguments: the loss in per cent, the delay in milliseconds, and the interfaces. It is never lost who has which address
   (ARP), as a host without it would look cut off and not slow. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_PORTS 16
#define QUEUE 65536
#define AT_ONCE 64
#define HEADER 14

struct packet {
    double due;
    int from, length;
    unsigned char *data;
};

static struct packet queue[QUEUE];
static unsigned head, tail;
static int sockets[MAX_PORTS], ports, known[MAX_PORTS];
static unsigned char addresses[MAX_PORTS][6];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int open_port(const char *name) {
    int port = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), one = 1, buffer = 8 << 20;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    address.sll_ifindex = if_nametoindex(name);
    if (!address.sll_ifindex || bind(port, (void *)&address, sizeof address)) {
        perror(name);
        exit(1);
    }
    struct packet_mreq all = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    setsockopt(port, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all);
    setsockopt(port, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    setsockopt(port, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
    return port;
}

static void take(int port, double loss, double delay) {
    static unsigned char data[70000];
    for (int count = 0; count < AT_ONCE; count++) {
        int length = recv(sockets[port], data, sizeof data, MSG_DONTWAIT);
        if (length <= HEADER) return;
        memcpy(addresses[port], data + 6, 6);
        known[port] = 1;
        int asks_for_address = data[12] == 8 && data[13] == 6;
        if ((!asks_for_address && drand48() < loss) || tail - head >= QUEUE - 1) continue;
        struct packet *packet = &queue[tail++ % QUEUE];
        *packet = (struct packet){now() + delay, port, length, malloc(length)};
        memcpy(packet->data, data, length);
    }
}

static void forward(struct packet *packet) {
    int target = -1, to_all = packet->data[0] & 1;
    for (int port = 0; port < ports && !to_all; port++)
        if (known[port] && !memcmp(addresses[port], packet->data, 6)) target = port;
    for (int port = 0; port < ports; port++)
        if (port != packet->from && (target < 0 || target == port))
            if (send(sockets[port], packet->data, packet->length, 0) < 0) perror("send");
    free(packet->data);
}

int main(int count, char **words) {
    double loss = atof(words[1]) / 100, delay = atof(words[2]) / 1000;
    srand48(7);
    for (int word = 3; word < count; word++) sockets[ports++] = open_port(words[word]);
    for (;;) {
        struct pollfd polled[MAX_PORTS];
        for (int port = 0; port < ports; port++) polled[port] = (struct pollfd){.fd = sockets[port], .events = POLLIN};
        double left = head == tail ? 1 : queue[head % QUEUE].due - now();
        poll(polled, ports, left < 0 ? 0 : (int)(left * 1000) + 1);
        for (int port = 0; port < ports; port++)
            if (polled[port].revents & POLLIN) take(port, loss, delay);
        while (head != tail && queue[head % QUEUE].due <= now()) forward(&queue[head++ % QUEUE]);
    }
}

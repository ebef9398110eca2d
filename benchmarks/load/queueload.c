/* queueload - a low-overhead load generator for message queues.
 *
 * Speaks the amps protocol (4-byte big-endian length, JSON header, body) and AMQP 0-9-1. A thread
 * publishes, another one reads everything that arrives, and acknowledges it in batches. What it
 * does is the same in both protocols: persistent messages, confirmed to the publisher; consumers
 * that have a connection each, and a backlog (AMQP: prefetch); acknowledgements of up to -batch
 * messages, or of fewer when nothing more comes for a while. A run fails (exit status 1) unless
 * every message has been confirmed, delivered exactly once, and acknowledged; the last thing that
 * each consumer does is to wait until the server says that it has dealt with the acknowledgements.
 *
 *   -mode rate     publish for -secs, with no more than -window messages unconfirmed or undelivered
 *   -mode latency  publish -rate messages a second for -secs; acknowledge whatever a read brings
 *   -mode drain    publish -n messages, and only then begin to consume them
 *
 * With -filters 1 every consumer wants messages of its own: by a content filter on one queue
 * (amps), or from a queue of its own, as it has no filters (AMQP).
 *
 * With -queues n each message goes to a random one of n queues, and every consumer takes from all of
 * them, on its one connection (amps: with a subscription for each, and acknowledgements by queue).
 *
 * One line of JSON says what came of it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef unsigned char byte;

enum { AMPS, AMQP };
enum { CHUNK = 1 << 18, IDLE_MS = 20, MAX_BATCH = 1024, HEADER = 256, MIXED = 4096 };

/* ---- options ---- */
static const char *o_proto = "amps", *o_mode = "rate", *o_queue = "jobs";
static long o_port = 0, o_pid = 0, o_size = 256, o_consumers = 1, o_backlog = 100, o_batch = 0, o_window = 8192, o_n = 0;
static long o_filters = 0, o_queues = 1, o_maxsecs = 120;
static double o_secs = 3, o_warm = 1, o_rate = 1000;

static int proto;

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "queueload: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(2);
}

/* ---- time ---- */
static u64 now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void nap(long ns) {
    struct timespec t = { ns / 1000000000, ns % 1000000000 };
    nanosleep(&t, NULL);
}
static double own_cpu(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}
static double server_cpu(void) {
    char path[64], text[2048];
    if (!o_pid) return 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", o_pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *fields = strrchr(text, ')');
    unsigned long user = 0, system = 0;
    if (fields) sscanf(fields + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (user + system) / (double)sysconf(_SC_CLK_TCK);
}
static double server_mb(void) {
    char path[64];
    long pages = 0;
    if (!o_pid) return 0;
    snprintf(path, sizeof path, "/proc/%ld/statm", o_pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    fclose(f);
    return pages * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

/* ---- sockets ---- */
typedef struct {
    int fd, index, is_consumer;
    char *left; /* of a frame that is not complete */
    size_t left_size, left_room;
    struct { char text[48]; int queue; } marks[MAX_BATCH]; /* amps: bookmarks to be acknowledged */
    u64 tag;                   /* AMQP: the last delivery */
    long unacked;
} Peer;

static int tcp(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(o_port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect to port %ld: %s", o_port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timeval limit = { 60, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}
static void put(int fd, const void *data, size_t size) {
    const char *p = data;
    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("write: %s", strerror(errno));
        p += n;
        size -= n;
    }
}
static void take(int fd, void *data, size_t size) {
    char *p = data;
    while (size) {
        ssize_t n = read(fd, p, size);
        if (n <= 0) die("read: %s", n ? strerror(errno) : "the server has closed the connection");
        p += n;
        size -= n;
    }
}

/* ---- amps ---- */
static void amps_send(int fd, const char *header) {
    char frame[4 + 64 * MAX_BATCH];
    size_t size = strlen(header);
    uint32_t length = htonl(size);
    memcpy(frame, &length, 4);
    memcpy(frame + 4, header, size);
    put(fd, frame, 4 + size);
}
static void amps_expect(int fd, const char *id) { /* other frames must not come before the ack */
    char text[4096], key[64];
    uint32_t size;
    snprintf(key, sizeof key, "\"cid\":\"%s\"", id);
    take(fd, &size, 4);
    size = ntohl(size);
    if (size >= sizeof text) die("an ack of %u bytes", size);
    take(fd, text, size);
    text[size] = 0;
    if (!strstr(text, key) || !strstr(text, "\"success\"")) die("expected success of %s, got %s", id, text);
}

/* ---- AMQP 0-9-1: frames of type, channel, size, payload, 0xCE; methods have class, id, arguments ---- */
enum { CONNECTION = 10, CHANNEL = 20, QUEUE = 50, BASIC = 60, CONFIRM = 85 };
#define METHOD(class, id) ((class) << 16 | (id))

typedef struct { byte data[1024]; size_t size; } Buffer;

static void b_num(Buffer *b, u64 value, int width) {
    for (int i = width - 1; i >= 0; i--) b->data[b->size++] = value >> (8 * i);
}
static void b_short(Buffer *b, const char *text) {
    size_t n = strlen(text);
    b_num(b, n, 1);
    memcpy(b->data + b->size, text, n);
    b->size += n;
}
static void b_begin(Buffer *b, int type, int channel) {
    b_num(b, type, 1);
    b_num(b, channel, 2);
    b_num(b, 0, 4);
}
static void b_end(Buffer *b, size_t start) {
    uint32_t size = htonl(b->size - start - 7);
    memcpy(b->data + start + 3, &size, 4);
    b_num(b, 0xCE, 1);
}
static u64 num(const byte *p, int width) {
    u64 value = 0;
    for (int i = 0; i < width; i++) value = value << 8 | p[i];
    return value;
}
static Buffer method(int channel, int class, int id) {
    Buffer b = { .size = 0 };
    b_begin(&b, 1, channel);
    b_num(&b, class, 2);
    b_num(&b, id, 2);
    return b;
}
static void amqp_send(int fd, Buffer *b) {
    b_end(b, 0);
    put(fd, b->data, b->size);
}
static void amqp_expect(int fd, int class, int id) {
    byte head[7], payload[1 << 17];
    take(fd, head, 7);
    u64 size = num(head + 3, 4);
    if (size + 1 > sizeof payload) die("a frame of %llu bytes", (unsigned long long)size);
    take(fd, payload, size + 1);
    u64 got = num(payload, 4);
    if (head[0] != 1 || got != (u64)METHOD(class, id))
        die("expected method %d.%d, got %d.%d: %.*s", class, id, (int)(got >> 16), (int)(got & 0xffff), (int)(size > 7 ? size - 7 : 0), payload + 7);
}
static int amqp_connect(void) {
    int fd = tcp();
    put(fd, "AMQP\0\0\x09\x01", 8);
    amqp_expect(fd, CONNECTION, 10);
    Buffer b = method(0, CONNECTION, 11);
    b_num(&b, 0, 4); /* no properties */
    b_short(&b, "PLAIN");
    b_num(&b, 12, 4);
    memcpy(b.data + b.size, "\0guest\0guest", 12);
    b.size += 12;
    b_short(&b, "en_US");
    amqp_send(fd, &b);
    amqp_expect(fd, CONNECTION, 30);
    b = method(0, CONNECTION, 31);
    b_num(&b, 16, 2);     /* channels */
    b_num(&b, 131072, 4); /* largest frame */
    b_num(&b, 0, 2);      /* no heartbeats */
    amqp_send(fd, &b);
    b = method(0, CONNECTION, 40);
    b_short(&b, "/");
    b_short(&b, "");
    b_num(&b, 0, 1);
    amqp_send(fd, &b);
    amqp_expect(fd, CONNECTION, 41);
    b = method(1, CHANNEL, 10);
    b_short(&b, "");
    amqp_send(fd, &b);
    amqp_expect(fd, CHANNEL, 11);
    return fd;
}
/* The queues have numbers where there are several. */
static long queues(void) { return o_filters && proto == AMQP ? o_consumers : o_queues; }
static void queue_name(char *name, size_t room, int queue) {
    if (queues() > 1) snprintf(name, room, "%s-%d", o_queue, queue);
    else snprintf(name, room, "%s", o_queue);
}
static void amqp_declare(int fd) { /* durable queues */
    char name[64];
    for (int i = 0; i < queues(); i++) {
        queue_name(name, sizeof name, i);
        Buffer b = method(1, QUEUE, 10);
        b_num(&b, 0, 2);
        b_short(&b, name);
        b_num(&b, 2, 1);
        b_num(&b, 0, 4);
        amqp_send(fd, &b);
        amqp_expect(fd, QUEUE, 11);
    }
}
static void amqp_delete(int fd) {
    char name[64];
    for (int i = 0; i < queues(); i++) {
        queue_name(name, sizeof name, i);
        Buffer b = method(1, QUEUE, 40);
        b_num(&b, 0, 2);
        b_short(&b, name);
        b_num(&b, 0, 1);
        amqp_send(fd, &b);
        amqp_expect(fd, QUEUE, 41);
    }
}

/* ---- who takes part ---- */
static Peer *consumers, *publisher;

static void open_publisher(void) {
    publisher = calloc(1, sizeof *publisher);
    if (proto == AMPS) {
        char header[HEADER];
        publisher->fd = tcp();
        snprintf(header, sizeof header,
                 "{\"c\":\"logon\",\"cid\":\"1\",\"client_name\":\"publisher-%d-%llu\",\"mt\":\"json\",\"a\":\"processed\",\"o\":\"ack_conflation=10ms\"}",
                 getpid(), (unsigned long long)now_ns());
        amps_send(publisher->fd, header);
        amps_expect(publisher->fd, "1");
        return;
    }
    publisher->fd = amqp_connect();
    amqp_declare(publisher->fd);
    Buffer b = method(1, CONFIRM, 10);
    b_num(&b, 0, 1);
    amqp_send(publisher->fd, &b);
    amqp_expect(publisher->fd, CONFIRM, 11);
}
static void log_on_consumers(void) {
    consumers = calloc(o_consumers, sizeof *consumers);
    for (int i = 0; i < o_consumers; i++) {
        Peer *c = &consumers[i];
        c->index = i;
        c->is_consumer = 1;
        if (proto == AMQP) {
            c->fd = amqp_connect();
            continue;
        }
        char header[HEADER];
        c->fd = tcp();
        snprintf(header, sizeof header, "{\"c\":\"logon\",\"cid\":\"1\",\"client_name\":\"consumer-%d-%d\",\"mt\":\"json\",\"a\":\"processed\"}",
                 getpid(), i);
        amps_send(c->fd, header);
        amps_expect(c->fd, "1");
    }
}
static void subscribe_to(Peer *c, int queue) {
    char name[64], id[16];
    queue_name(name, sizeof name, queue);
    snprintf(id, sizeof id, "c%d", queue);
    if (proto == AMPS) {
        char header[HEADER], filter[64] = "";
        if (o_filters) snprintf(filter, sizeof filter, ",\"f\":\"/symbol = 'SYM%06d'\"", c->index);
        snprintf(header, sizeof header, "{\"c\":\"subscribe\",\"cid\":\"%s\",\"sub_id\":\"%s\",\"t\":\"%s\",\"a\":\"processed\",\"o\":\"max_backlog=%ld\"%s}",
                 id, id, name, o_backlog, filter);
        amps_send(c->fd, header);
        amps_expect(c->fd, id);
        return;
    }
    Buffer b = method(1, BASIC, 20);
    b_num(&b, 0, 2);
    b_short(&b, name);
    b_short(&b, id);
    b_num(&b, 0, 1); /* acknowledgements are wanted */
    b_num(&b, 0, 4);
    amqp_send(c->fd, &b);
    amqp_expect(c->fd, BASIC, 21);
}
static void subscribe(Peer *c) {
    if (proto == AMQP) {
        Buffer b = method(1, BASIC, 10);
        b_num(&b, 0, 4);
        b_num(&b, o_backlog, 2);
        b_num(&b, 0, 1);
        amqp_send(c->fd, &b);
        amqp_expect(c->fd, BASIC, 11);
    }
    if (proto == AMQP && o_filters) subscribe_to(c, c->index);
    else
        for (int i = 0; i < queues(); i++) subscribe_to(c, i);
}

/* ---- messages: templates with places for numbers of a fixed width ---- */
typedef struct { char *data; size_t size, header_number, number, sent; } Message;
static Message *ring;
static long ring_size;

static void put_decimal(char *p, int width, u64 value) {
    for (int i = width - 1; i >= 0; i--, value /= 10) p[i] = '0' + value % 10;
}
static void build_ring(void) {
    ring_size = o_filters ? o_consumers : o_queues > 1 ? MIXED : 64;
    ring = calloc(ring_size, sizeof *ring);
    for (int i = 0; i < ring_size; i++) {
        char *body = malloc(o_size + 256), *frame = malloc(o_size + 1024);
        int n = sprintf(body, "{\"number\":1000000000,\"sent\":1000000000000000000,\"symbol\":\"SYM%06d\",\"side\":\"%s\",\"qty\":%d,\"pad\":\"",
                        i, i & 1 ? "BUY" : "SELL", i * 7919 % 1000);
        if (n + 2 > o_size) die("a message has %d bytes at least", n + 2);
        while (n < o_size - 2) body[n++] = 'p';
        memcpy(body + n, "\"}", 3);
        size_t head;
        char name[64];
        queue_name(name, sizeof name, o_queues > 1 ? random() % o_queues : i);
        Message *m = &ring[i];
        if (proto == AMPS) {
            head = 4 + sprintf(frame + 4, "{\"c\":\"publish\",\"t\":\"%s\",\"s\":1000000000,\"a\":\"persisted\"}", name);
            m->header_number = strstr(frame + 4, "\"s\":") + 4 - frame;
            uint32_t length = htonl(head - 4 + o_size);
            memcpy(frame, &length, 4);
            memcpy(frame + head, body, o_size);
            m->size = head + o_size;
        } else {
            Buffer b = method(1, BASIC, 40);
            b_num(&b, 0, 2);
            b_short(&b, ""); /* the default exchange: by the queue's name */
            b_short(&b, name);
            b_num(&b, 0, 1);
            b_end(&b, 0);
            size_t start = b.size;
            b_begin(&b, 2, 1);
            b_num(&b, BASIC, 2);
            b_num(&b, 0, 2);
            b_num(&b, o_size, 8);
            b_num(&b, 1 << 12, 2); /* the delivery mode: */
            b_num(&b, 2, 1);       /* persistent */
            b_end(&b, start);
            start = b.size;
            b_begin(&b, 3, 1);
            uint32_t length = htonl(o_size);
            memcpy(b.data + start + 3, &length, 4);
            head = b.size;
            memcpy(frame, b.data, head);
            memcpy(frame + head, body, o_size);
            frame[head + o_size] = (char)0xCE;
            m->size = head + o_size + 1;
        }
        m->data = frame;
        m->number = head + (strstr(body, "\"number\":") + 9 - body);
        m->sent = head + (strstr(body, "\"sent\":") + 7 - body);
        free(body);
    }
}

/* ---- what has happened ---- */
static _Atomic u64 published, confirmed, delivered, acknowledged, repeated;
static atomic_int is_over;
static byte *seen, *sure; /* by number: whether it has been delivered; AMQP: confirmed, from 1 on */
static u64 most;          /* messages that can be published */
static u64 *latencies, latency_count, latency_room, latency_from;

static void note(const char *body, size_t size, u64 now) {
    const char *number = memmem(body, size, "\"number\":1", 10);
    if (!number) die("a message that was not published: %.*s", (int)size, body);
    u64 value = strtoull(number + 9, NULL, 10) - 1000000000ull;
    if (value >= most) die("message %llu was not published", (unsigned long long)value);
    if (seen[value]) repeated++;
    seen[value] = 1;
    if (latencies) {
        u64 sent = strtoull((char *)memmem(body, size, "\"sent\":", 7) + 7, NULL, 10) - 1000000000000000000ull;
        if (sent >= latency_from && latency_count < latency_room) latencies[latency_count++] = now - sent;
    }
}
static void acknowledge_queue(Peer *c, int queue) { /* amps */
    char header[64 + 50 * MAX_BATCH], name[64];
    queue_name(name, sizeof name, queue);
    int n = sprintf(header, "{\"c\":\"sow_delete\",\"t\":\"%s\",\"bm\":\"", name), start = n;
    for (int i = 0; i < c->unacked; i++) {
        if (c->marks[i].queue != queue) continue;
        if (n > start) header[n++] = ',';
        size_t length = strlen(c->marks[i].text);
        memcpy(header + n, c->marks[i].text, length);
        n += length;
    }
    strcpy(header + n, "\"}");
    if (n > start) amps_send(c->fd, header);
}
static void acknowledge(Peer *c) {
    if (!c->unacked) return;
    if (proto == AMPS) {
        for (int i = 0; i < o_queues; i++) acknowledge_queue(c, i);
    } else {
        Buffer b = method(1, BASIC, 80);
        b_num(&b, c->tag, 8);
        b_num(&b, 1, 1); /* and all before it */
        amqp_send(c->fd, &b);
    }
    acknowledged += c->unacked;
    c->unacked = 0;
}
static void received(Peer *c, const char *body, size_t size, u64 now) {
    note(body, size, now);
    delivered++;
    if (++c->unacked >= o_batch) acknowledge(c);
}
static const char *find(const char *text, size_t size, const char *what) {
    const char *found = memmem(text, size, what, strlen(what));
    return found ? found + strlen(what) : NULL;
}
static size_t parse_amps(Peer *c, const char *data, size_t size, u64 now) {
    size_t at = 0;
    while (size - at >= 4) {
        size_t length = num((const byte *)data + at, 4);
        if (size - at < 4 + length) break;
        const char *frame = data + at + 4;
        at += 4 + length;
        size_t head = length < 512 ? length : 512;
        const char *mark = c->is_consumer ? find(frame, head, "\"bm\":\"") : NULL;
        if (mark) {
            const char *end = memchr(mark, '"', frame + head - mark), *text = find(frame, head, "\"l\":");
            if (!end || !text || end - mark > 47) die("a message without a bookmark or length: %.*s", (int)head, frame);
            size_t body = strtoul(text, NULL, 10);
            memcpy(c->marks[c->unacked].text, mark, end - mark);
            c->marks[c->unacked].text[end - mark] = 0;
            const char *id = o_queues > 1 ? find(frame, head, "\"sids\":\"c") : NULL;
            if (o_queues > 1 && !id) die("a message without a subscription: %.*s", (int)head, frame);
            c->marks[c->unacked].queue = id ? atoi(id) : 0;
            received(c, frame + length - body, body, now);
            continue;
        }
        if (find(frame, head, "\"failure\"")) die("the server says: %.*s", (int)length, frame);
        const char *number = c->is_consumer ? NULL : find(frame, head, "\"s\":");
        if (number) confirmed = strtoull(number, NULL, 10) - 1000000000ull + 1;
    }
    return at;
}
static void confirm(u64 tag, int is_multiple) { /* several queues confirm in an order of their own */
    if (tag > most) die("message %llu was confirmed and not published", (unsigned long long)tag);
    if (is_multiple) memset(sure + confirmed + 1, 1, tag > confirmed ? tag - confirmed : 0);
    sure[tag] = 1;
    while (sure[confirmed + 1]) confirmed++;
}
static size_t parse_amqp(Peer *c, const char *bytes, size_t size, u64 now) {
    const byte *data = (const byte *)bytes;
    size_t at = 0;
    while (size - at >= 8) {
        size_t length = num(data + at + 3, 4);
        if (size - at < 8 + length) break;
        int type = data[at];
        const byte *payload = data + at + 7;
        at += 8 + length;
        if (type == 3) {
            received(c, (const char *)payload, length, now);
        } else if (type == 1) {
            u64 what = num(payload, 4);
            if (what == METHOD(BASIC, 60)) c->tag = num(payload + 5 + payload[4], 8);
            else if (what == METHOD(BASIC, 80)) confirm(num(payload + 4, 8), payload[12] & 1);
            else die("the server says %d.%d: %.*s", (int)(what >> 16), (int)(what & 0xffff), (int)length - 7, payload + 7);
        }
    }
    return at;
}

/* ---- receiving ---- */
static void watch(int ep, Peer *p) {
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = p };
    epoll_ctl(ep, EPOLL_CTL_ADD, p->fd, &event);
}
static int ep;

static void read_from(Peer *p, char *buffer, int is_latency) {
    memcpy(buffer, p->left, p->left_size);
    ssize_t n = recv(p->fd, buffer + p->left_size, CHUNK, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) die("the server has closed the connection of a %s", p->is_consumer ? "consumer" : "publisher");
    size_t size = p->left_size + n;
    size_t used = (proto == AMPS ? parse_amps : parse_amqp)(p, buffer, size, now_ns());
    p->left_size = size - used;
    if (p->left_size > p->left_room) p->left = realloc(p->left, p->left_room = 2 * p->left_size);
    memcpy(p->left, buffer + used, p->left_size);
    if (is_latency) acknowledge(p);
}
static void *receive(void *unused) {
    char *buffer = malloc(2 * CHUNK + (1 << 20));
    int is_latency = latencies != NULL;
    struct epoll_event events[64];
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    while (!is_over) {
        int n = epoll_wait(ep, events, 64, IDLE_MS);
        for (int i = 0; i < n; i++) read_from(events[i].data.ptr, buffer, is_latency);
        if (!n && consumers)
            for (int i = 0; i < o_consumers; i++)
                acknowledge(&consumers[i]);
    }
    free(buffer);
    return NULL;
}
static void settle(Peer *c) { /* wait until the server has dealt with all acknowledgements */
    if (proto == AMPS) {
        amps_send(c->fd, "{\"c\":\"flush\",\"cid\":\"9\",\"a\":\"persisted\"}");
        amps_expect(c->fd, "9");
        return;
    }
    Buffer b = method(1, CHANNEL, 40);
    b_num(&b, 200, 2);
    b_short(&b, "");
    b_num(&b, 0, 4);
    amqp_send(c->fd, &b);
    amqp_expect(c->fd, CHANNEL, 41);
}

/* ---- publishing ---- */
static u64 stop_at;

static void *publish(void *unused) {
    char *buffer = malloc(2 * CHUNK);
    int waits_for_delivery = strcmp(o_mode, "drain");
    u64 mine = 0;
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    while (mine < most && (o_n || now_ns() < stop_at)) {
        u64 behind = waits_for_delivery && delivered < confirmed ? delivered : confirmed;
        u64 room = o_window - (mine - behind);
        if (room < (u64)o_window / 8) { /* in portions, as somebody publishes who is not held back */
            nap(50000);
            continue;
        }
        size_t size = 0;
        for (; room && mine < most && size + o_size + 512 < CHUNK / 4; room--, mine++) {
            Message *m = &ring[mine % ring_size];
            memcpy(buffer + size, m->data, m->size);
            if (m->header_number) put_decimal(buffer + size + m->header_number, 10, 1000000000ull + mine);
            put_decimal(buffer + size + m->number, 10, 1000000000ull + mine);
            size += m->size;
        }
        published = mine;
        put(publisher->fd, buffer, size);
    }
    free(buffer);
    return NULL;
}
static void *publish_paced(void *unused) {
    u64 step = 1e9 / o_rate, next = now_ns(), mine = 0;
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1);
    while (mine < most && now_ns() < stop_at) {
        next += step;
        struct timespec t = { next / 1000000000ull, next % 1000000000ull };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        Message *m = &ring[mine % ring_size];
        if (m->header_number) put_decimal(m->data + m->header_number, 10, 1000000000ull + mine);
        put_decimal(m->data + m->number, 10, 1000000000ull + mine);
        put_decimal(m->data + m->sent, 19, 1000000000000000000ull + now_ns());
        mine++;
        published = mine;
        put(publisher->fd, m->data, m->size);
    }
    return NULL;
}

/* ---- runs ---- */
typedef struct { u64 at, delivered; double server, own; } Moment;

static Moment moment(void) { return (Moment){ now_ns(), delivered, server_cpu(), own_cpu() }; }
static void until(u64 at) {
    while (now_ns() < at) nap(1000000);
}
static void wait_for(_Atomic u64 *count, u64 wanted, const char *what) {
    u64 last = *count, since = now_ns();
    while (*count < wanted) {
        nap(200000);
        if (*count != last) last = *count, since = now_ns();
        if (now_ns() - since > 20000000000ull)
            die("%llu of %llu messages were %s, and no more for 20 seconds", (unsigned long long)last, (unsigned long long)wanted, what);
    }
}
static int compare(const void *a, const void *b) {
    u64 x = *(const u64 *)a, y = *(const u64 *)b;
    return x < y ? -1 : x > y;
}
static void on_alarm(int unused) {
    static const char text[] = "queueload: the time is up\n";
    (void)unused;
    if (write(2, text, sizeof text - 1)) _exit(3);
    _exit(3);
}
static void prepare(void) {
    int is_latency = !strcmp(o_mode, "latency");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, on_alarm);
    alarm(o_maxsecs);
    if (!o_batch) o_batch = o_backlog < 160 ? (o_backlog + 1) / 2 : 80;
    if (o_batch > MAX_BATCH) o_batch = MAX_BATCH;
    most = o_n ? (u64)o_n : is_latency ? (u64)((o_warm + o_secs) * o_rate) + 1000 : 400000000ull;
    seen = calloc(most, 1);
    sure = calloc(most + 2, 1);
    if (is_latency) latencies = calloc(latency_room = most, sizeof *latencies);
    build_ring();
    ep = epoll_create1(0);
    open_publisher();
    watch(ep, publisher);
}
static void begin_consuming(void) {
    for (int i = 0; i < o_consumers; i++) { /* one after the other: what comes first must not be lost */
        subscribe(&consumers[i]);
        watch(ep, &consumers[i]);
    }
}
static void report(Moment a, Moment b) {
    double seconds = (b.at - a.at) / 1e9, count = b.delivered - a.delivered;
    if (count < 1) count = 1;
    printf("{\"published\":%llu,\"repeated\":%llu,\"rate\":%.0f,\"srv_cpu_us\":%.3f,\"gen_cpu_us\":%.3f,\"srv_mb\":%.1f",
           (unsigned long long)published, (unsigned long long)repeated, (b.delivered - a.delivered) / seconds, (b.server - a.server) * 1e6 / count,
           (b.own - a.own) * 1e6 / count, server_mb());
}

int main(int argc, char **argv) {
    struct { const char *name; char kind; void *value; } options[] = {
        { "proto", 's', &o_proto }, { "mode", 's', &o_mode }, { "queue", 's', &o_queue }, { "port", 'l', &o_port }, { "pid", 'l', &o_pid },
        { "size", 'l', &o_size }, { "consumers", 'l', &o_consumers }, { "backlog", 'l', &o_backlog }, { "batch", 'l', &o_batch },
        { "window", 'l', &o_window }, { "n", 'l', &o_n }, { "filters", 'l', &o_filters }, { "queues", 'l', &o_queues }, { "maxsecs", 'l', &o_maxsecs }, { "secs", 'd', &o_secs },
        { "warm", 'd', &o_warm }, { "rate", 'd', &o_rate }, { 0 } };
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        while (options[k].name && strcmp(options[k].name, argv[i] + (*argv[i] == '-'))) k++;
        if (!options[k].name || i + 1 >= argc) die("unknown or incomplete option %s", argv[i]);
        if (options[k].kind == 's') *(const char **)options[k].value = argv[i + 1];
        else if (options[k].kind == 'l') *(long *)options[k].value = atol(argv[i + 1]);
        else *(double *)options[k].value = atof(argv[i + 1]);
    }
    proto = !strcmp(o_proto, "amqp") ? AMQP : AMPS;
    int is_drain = !strcmp(o_mode, "drain"), is_latency = !strcmp(o_mode, "latency");
    prepare();
    pthread_t receiver, sender;
    double fill_rate = 0, fill_cpu = 0;
    if (is_drain) {
        Moment a = moment();
        pthread_create(&receiver, NULL, receive, NULL);
        pthread_create(&sender, NULL, publish, NULL);
        pthread_join(sender, NULL);
        wait_for(&confirmed, published, "confirmed");
        Moment b = moment();
        fill_rate = published / ((b.at - a.at) / 1e9);
        fill_cpu = (b.server - a.server) * 1e6 / published;
        log_on_consumers();
        a = moment();
        begin_consuming();
        wait_for(&delivered, published, "delivered");
        wait_for(&acknowledged, published, "acknowledged");
        is_over = 1;
        pthread_join(receiver, NULL);
        for (int i = 0; i < o_consumers; i++) settle(&consumers[i]);
        report(a, moment());
        printf(",\"fill_rate\":%.0f,\"fill_cpu_us\":%.3f", fill_rate, fill_cpu);
    } else {
        log_on_consumers();
        begin_consuming();
        u64 start = now_ns();
        latency_from = start + (u64)(o_warm * 1e9);
        stop_at = latency_from + (u64)(o_secs * 1e9);
        pthread_create(&receiver, NULL, receive, NULL);
        pthread_create(&sender, NULL, is_latency ? publish_paced : publish, NULL);
        until(latency_from);
        Moment a = moment();
        until(stop_at);
        Moment b = moment();
        pthread_join(sender, NULL);
        wait_for(&confirmed, published, "confirmed");
        wait_for(&delivered, published, "delivered");
        wait_for(&acknowledged, published, "acknowledged");
        is_over = 1;
        pthread_join(receiver, NULL);
        for (int i = 0; i < o_consumers; i++) settle(&consumers[i]);
        report(a, b);
    }
    if (latency_count) {
        qsort(latencies, latency_count, sizeof *latencies, compare);
        printf(",\"p50_us\":%.1f,\"p99_us\":%.1f", latencies[latency_count / 2] / 1e3, latencies[latency_count * 99 / 100] / 1e3);
    }
    printf("}\n");
    if (proto == AMQP) amqp_delete(publisher->fd);
    return repeated ? 1 : 0;
}

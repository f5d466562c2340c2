/* Mock engine: an OpenAI server that answers at once, so that what is measured is the way to it.
 *
 *   mock PORT
 *
 * A POST is answered with a short chat completion, or with events when its body has "stream":true. Then "max_tokens" is
 * their number and "seed" the microseconds between them: fields that every proxy passes on. Each event's text holds the
 * time at which it was sent, as t= and 16 digits. Only the first 2 KiB and last 512 bytes of a body are looked at.
 * GET answers what proxies ask engines when they start. One thread, epoll.
 */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 65536
#define HEAD 16384
#define FIRST 2048
#define LAST 512

enum state { READING_HEAD, READING_BODY, STREAMING };

struct connection {
    enum state state;
    struct body body;
    int close_after;
    uint32_t life; /* counts what happened to this slot, so that a timer of an earlier stream is known as such */
    size_t head_length, first_length, last_length;
    char head[HEAD + 1];
    char first[FIRST + LAST + 1]; /* the first bytes of the body, and behind them the last */
    char last[LAST];
    int64_t events, gap, due;
};

struct timer {
    int64_t due;
    int fd;
    uint32_t life;
};

static struct connection *connections[CONNECTIONS];
static struct timer timers[CONNECTIONS];
static size_t timer_count;
static int poller;

static void timer_add(int fd) {
    struct timer new = {connections[fd]->due, fd, connections[fd]->life};
    if (timer_count == CONNECTIONS) abort();
    size_t at = timer_count++;
    while (at && timers[(at - 1) / 2].due > new.due) {
        timers[at] = timers[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    timers[at] = new;
}

static struct timer timer_take(void) {
    struct timer first = timers[0], last = timers[--timer_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < timer_count; at = child) {
        if (child + 1 < timer_count && timers[child + 1].due < timers[child].due) child++;
        if (timers[child].due >= last.due) break;
        timers[at] = timers[child];
    }
    timers[at] = last;
    return first;
}

static void drop(int fd) {
    connections[fd]->life++;
    connections[fd]->state = READING_HEAD;
    close(fd);
}

/* Answers are small: a client that does not even take these is given up. */
static int put(int fd, const char *data, size_t length) {
    if (send(fd, data, length, MSG_NOSIGNAL) == (ssize_t)length) return 1;
    drop(fd);
    return 0;
}

static void next_request(int fd) {
    struct connection *c = connections[fd];
    c->life++;
    c->state = READING_HEAD;
    c->head_length = 0;
    if (c->close_after) drop(fd);
}

static void put_json(int fd, const char *document) {
    char answer[2048];
    int length = snprintf(answer, sizeof answer,
                          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
                          strlen(document), connections[fd]->close_after ? "Connection: close\r\n" : "", document);
    if (put(fd, answer, (size_t)length)) next_request(fd);
}

static int64_t number(const char *text, const char *name, int64_t otherwise) {
    const char *found = strstr(text, name);
    if (!found) return otherwise;
    found += strlen(name);
    while (*found == ' ' || *found == ':') found++;
    return atoll(found);
}

static int wants_stream(const char *text) {
    const char *found = strstr(text, "\"stream\"");
    if (!found) return 0;
    found += strlen("\"stream\"");
    while (*found == ' ' || *found == ':') found++;
    return strncmp(found, "true", 4) == 0;
}

static void answer_post(int fd) {
    struct connection *c = connections[fd];
    memcpy(c->first + c->first_length, c->last, c->last_length);
    c->first[c->first_length + c->last_length] = 0;
    if (!wants_stream(c->first)) {
        put_json(fd, "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"bench\","
                     "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown fox "
                     "jumps over the lazy dog, and the dog does not mind at all.\"},\"finish_reason\":\"stop\"}],"
                     "\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":18,\"total_tokens\":38}}");
        return;
    }
    const char *head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n";
    c->events = number(c->first, "\"max_tokens\"", 100);
    c->gap = number(c->first, "\"seed\"", 5000);
    c->state = STREAMING;
    c->due = now_us();
    if (put(fd, head, strlen(head))) timer_add(fd);
}

static void answer_get(int fd) {
    const char *path = connections[fd]->head + 4;
    if (strncmp(path, "/v1/models", 10) == 0)
        put_json(fd, "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1700000000,"
                     "\"owned_by\":\"mock\",\"root\":\"bench\",\"max_model_len\":1000000}]}");
    else
        put_json(fd, "{\"status\":\"ok\",\"model_path\":\"bench\",\"served_model_name\":\"bench\",\"model_id\":\"bench\","
                     "\"version\":\"0.6.0\"}");
}

static void event(int fd) {
    struct connection *c = connections[fd];
    char data[512], chunk[640];
    int length;
    if (c->events-- > 0) {
        length = snprintf(data, sizeof data,
                          "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                          "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"
                          "\"t=%016lld \"},\"finish_reason\":null}]}\n\n",
                          (long long)now_us());
        length = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", (unsigned)length, data);
        if (!put(fd, chunk, (size_t)length)) return;
        c->due += c->gap;
        timer_add(fd);
        return;
    }
    length = snprintf(data, sizeof data,
                      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
                      "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
                      "data: [DONE]\n\n");
    length = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n0\r\n\r\n", (unsigned)length, data);
    if (put(fd, chunk, (size_t)length)) next_request(fd);
}

/* Keep the first and the last bytes of the body. */
static void remember(struct connection *c, const char *data, size_t n) {
    size_t take = FIRST - c->first_length < n ? FIRST - c->first_length : n;
    memcpy(c->first + c->first_length, data, take);
    c->first_length += take;
    data += take;
    n -= take;
    if (n >= LAST) {
        memcpy(c->last, data + n - LAST, LAST);
        c->last_length = LAST;
    } else if (n) {
        size_t keep = c->last_length + n > LAST ? LAST - n : c->last_length;
        memmove(c->last, c->last + c->last_length - keep, keep);
        memcpy(c->last + keep, data, n);
        c->last_length = keep + n;
    }
}

static void start_body(int fd) {
    struct connection *c = connections[fd];
    c->close_after = header_has(c->head, "\nconnection:", "close");
    c->first_length = c->last_length = 0;
    c->state = READING_BODY;
    body_start(&c->body, c->head, 0);
    if (c->body.state != ENDED && header_has(c->head, "\nexpect:", "100")) put(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

static void receive(int fd) {
    static char buffer[262144];
    struct connection *c = connections[fd];
    ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) {
        if (got < 0 && errno == EAGAIN) return;
        drop(fd);
        return;
    }
    char *data = buffer;
    size_t n = (size_t)got;
    if (c->state == READING_HEAD) {
        size_t before = c->head_length, take = HEAD - before < n ? HEAD - before : n;
        memcpy(c->head + before, data, take);
        c->head_length += take;
        c->head[c->head_length] = 0;
        char *end = strstr(c->head, "\r\n\r\n");
        if (!end) {
            if (c->head_length == HEAD) drop(fd);
            return;
        }
        size_t used = (size_t)(end + 4 - c->head) - before;
        end[2] = 0;
        data += used;
        n -= used;
        start_body(fd);
    }
    uint32_t life = c->life;
    while (n && c->state == READING_BODY && c->body.state != ENDED) {
        size_t start, content, used = body_feed(&c->body, data, n, &start, &content);
        if (content) remember(c, data + start, content);
        data += used;
        n -= used;
    }
    if (c->life == life && c->state == READING_BODY && c->body.state == ENDED) {
        if (strncmp(c->head, "POST", 4) == 0) answer_post(fd);
        else answer_get(fd);
    }
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= CONNECTIONS) {
            close(fd);
            continue;
        }
        if (!connections[fd] && !(connections[fd] = calloc(1, sizeof *connections[fd]))) abort();
        connections[fd]->life++;
        connections[fd]->state = READING_HEAD;
        connections[fd]->head_length = 0;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event interest = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &interest);
    }
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: mock PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(arguments[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) {
        perror("mock");
        return 1;
    }
    poller = epoll_create1(0);
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &interest);
    for (;;) {
        struct timespec wait = {0}, *limit = NULL;
        if (timer_count) {
            int64_t left = timers[0].due - now_us();
            if (left > 0) wait = (struct timespec){left / 1000000, left % 1000000 * 1000};
            limit = &wait;
        }
        int found = epoll_pwait2(poller, ready, 256, limit, NULL);
        for (int i = 0; i < found; i++) {
            if (ready[i].data.fd == listener) accept_all(listener);
            else receive(ready[i].data.fd);
        }
        for (int64_t now = now_us(); timer_count && timers[0].due <= now;) {
            struct timer due = timer_take();
            struct connection *c = connections[due.fd];
            if (c->life == due.life && c->state == STREAMING) event(due.fd);
        }
    }
}

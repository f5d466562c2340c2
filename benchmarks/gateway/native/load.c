/* Load generator: sends one request over and over to a port of 127.0.0.1 and prints one line of JSON.
 *
 *   load [options] PORT BODY_FILE
 *     -c N        connections (closed loop), or the most that are opened (fixed rate); default 32
 *     -d SECONDS  length of the measured window; default 2
 *     -w SECONDS  warm-up before it; default 0.3
 *     -r RATE     open loop: requests a second, each timed from when it was due; default closed loop
 *     -s          answers are events: their delay is read from the stamp t= that the mock engine puts into each
 *     -i          idle streams: open all, wait for the first byte of each, then measure while nothing is asked
 *     -k KEY      API key
 *     -p PID,...  processes whose CPU time and memory are counted within the window
 *
 * CPU time is utime+stime of the processes with all their threads, memory the highest sum of their resident sets, looked
 * at every 20 ms. A server that says "Connection: close" is obeyed. One thread, epoll, timers of nanoseconds.
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

#define HEAD 16384
#define PROCESSES 64
#define DRAIN_US 5000000
#define SAMPLE_US 20000
#define GIVE_UP 2000 /* failures in a row, after which measuring makes no sense */

enum state { CLOSED, IDLE, BUSY };

struct connection {
    int fd;
    enum state state;
    int writable, close_after, in_window, has_head, matched;
    size_t sent, head_length;
    int64_t due, first;
    int64_t stamp;
    int status;
    struct body body;
    char head[HEAD + 1];
};

struct samples {
    int32_t *values;
    size_t count, room;
};

static struct {
    int port, connections, stream, idle;
    double seconds, warm_up, rate;
    const char *key;
    int pids[PROCESSES], pid_count;
} option = {.connections = 32, .seconds = 2, .warm_up = 0.3, .key = ""};

static char *request;
static size_t request_length;
static struct connection **all;
static int *free_list, free_count, opened, poller;
static int64_t window_start, window_end;
static struct samples latency, first_byte, event_delay;
static struct { long completed, ok, client_errors, server_errors, broken, in_row, late, started, events, connects; } count;
static int in_flight;

static void add(struct samples *s, int64_t value) {
    if (s->count == s->room) {
        s->room = s->room ? s->room * 2 : 65536;
        if (!(s->values = realloc(s->values, s->room * sizeof *s->values))) abort();
    }
    s->values[s->count++] = value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static int32_t quantile(struct samples *s, double q) { return s->count ? s->values[(size_t)((double)(s->count - 1) * q)] : 0; }

/* CPU time of the processes in microseconds. */
static int64_t cpu_us(void) {
    int64_t total = 0, tick = 1000000 / sysconf(_SC_CLK_TCK);
    for (int i = 0; i < option.pid_count; i++) {
        char path[64], text[1024];
        snprintf(path, sizeof path, "/proc/%d/stat", option.pids[i]);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = 0;
        char *rest = strrchr(text, ')');
        unsigned long user = 0, system = 0;
        if (rest) sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
        total += (int64_t)(user + system) * tick;
    }
    return total;
}

static int64_t resident_bytes(void) {
    int64_t total = 0;
    for (int i = 0; i < option.pid_count; i++) {
        char path[64];
        long long pages = 0;
        snprintf(path, sizeof path, "/proc/%d/statm", option.pids[i]);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%*d %lld", &pages) == 1) total += pages * sysconf(_SC_PAGESIZE);
        fclose(file);
    }
    return total;
}

static void open_connection(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)option.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        perror("load: socket");
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connect(c->fd, (struct sockaddr *)&address, sizeof address);
    struct epoll_event interest = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &interest);
    c->state = IDLE;
    c->writable = 0; /* epoll says when the connection stands */
    count.connects++;
}

static void release(struct connection *c, int keep) {
    if (!keep) {
        close(c->fd);
        c->state = CLOSED;
    } else {
        c->state = IDLE;
    }
    free_list[free_count++] = (int)(c - all[0]);
}

static void push_request(struct connection *c) {
    while (c->writable && c->sent < request_length) {
        ssize_t n = send(c->fd, request + c->sent, request_length - c->sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN) c->writable = 0;
            return; /* whatever else is wrong will be seen when the answer is read */
        }
        c->sent += (size_t)n;
    }
}

static void start(struct connection *c, int64_t due) {
    if (c->state == CLOSED) open_connection(c);
    c->state = BUSY;
    c->sent = c->head_length = 0;
    c->has_head = c->matched = 0;
    c->due = due;
    c->first = 0;
    c->in_window = due >= window_start && due < window_end;
    in_flight++;
    count.started += c->in_window;
    push_request(c);
}

static void finish(struct connection *c, int whole) {
    int64_t now = now_us();
    in_flight--;
    if (whole) {
        count.in_row = 0;
        if (now >= window_start && now < window_end) count.completed++;
        if (c->in_window) {
            if (c->status < 400) count.ok++;
            else if (c->status < 500) count.client_errors++;
            else count.server_errors++;
            add(&latency, now - c->due);
            add(&first_byte, c->first - c->due);
        }
    } else {
        count.broken += c->in_window;
        if (++count.in_row > GIVE_UP) {
            fprintf(stderr, "load: port %d breaks every connection\n", option.port);
            exit(1);
        }
    }
    release(c, whole && !c->close_after);
}

/* Find t= and 16 digits in the content of an answer, wherever reads and chunks cut it. */
static void scan(struct connection *c, const char *data, size_t n, int64_t now) {
    const char *end = data + n;
    while (data < end) {
        if (!c->matched) {
            if (!(data = memchr(data, 't', (size_t)(end - data)))) return;
            c->matched = 1;
            data++;
        } else if (c->matched == 1) {
            c->matched = *data++ == '=' ? 2 : 0;
            c->stamp = 0;
        } else if (*data >= '0' && *data <= '9') {
            c->stamp = c->stamp * 10 + (*data++ - '0');
            if (++c->matched == 18) {
                c->matched = 0;
                if (now >= window_start && now < window_end) {
                    count.events++;
                    add(&event_delay, now - c->stamp);
                }
            }
        } else {
            c->matched = 0;
        }
    }
}

/* Take the head of an answer out of the bytes that came; says how many of them are not the head's. */
static size_t take_head(struct connection *c, const char *data, size_t n) {
    size_t before = c->head_length, take = HEAD - before < n ? HEAD - before : n;
    memcpy(c->head + before, data, take);
    c->head_length += take;
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return 0;
    end[2] = 0;
    size_t used = (size_t)(end + 4 - c->head) - before;
    c->status = atoi(c->head + strlen("HTTP/1.1 "));
    c->head_length = 0;
    if (c->status == 100) return n - used;
    c->has_head = 1;
    c->close_after = header_has(c->head, "\nconnection:", "close");
    body_start(&c->body, c->head, 1);
    return n - used;
}

static void receive(struct connection *c) {
    static char buffer[262144];
    while (c->state != CLOSED) {
        ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            if (c->state == BUSY) {
                finish(c, c->has_head && c->body.state == UNTIL_CLOSE);
            }
            if (c->state == IDLE) { /* the server closed an unused connection; it stays in the list of free ones */
                close(c->fd);
                c->state = CLOSED;
            }
            return;
        }
        if (c->state != BUSY) continue;
        int64_t now = now_us();
        if (!c->first) c->first = now;
        const char *data = buffer;
        size_t n = (size_t)got;
        while (n && !c->has_head) {
            size_t left = take_head(c, data, n);
            data += n - left;
            n = left;
        }
        while (n && c->body.state != ENDED) {
            size_t from, content, used = body_feed(&c->body, data, n, &from, &content);
            if (option.stream && content) scan(c, data + from, content, now);
            data += used;
            n -= used;
        }
        if (c->has_head && c->body.state == ENDED) finish(c, 1);
    }
}

static struct connection *available(void) {
    if (free_count) return all[free_list[--free_count]];
    if (opened == option.connections) return NULL;
    struct connection *c = all[opened++];
    c->state = CLOSED;
    return c;
}

static void make_request(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    request = malloc((size_t)length + 4096);
    int head = snprintf(request, 4096,
                        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.local\r\nUser-Agent: load\r\n"
                        "Accept: */*\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n"
                        "Content-Length: %ld\r\n\r\n",
                        option.key, length);
    request_length = (size_t)head + fread(request + head, 1, (size_t)length, file);
    fclose(file);
}

static void print_result(double elapsed, int64_t cpu, int64_t resident) {
    struct samples *s[] = {&latency, &first_byte, &event_delay};
    for (int i = 0; i < 3; i++)
        if (s[i]->count) qsort(s[i]->values, s[i]->count, sizeof *s[i]->values, ascending);
    printf("{\"seconds\":%.6f,\"completed\":%ld,\"started\":%ld,\"ok\":%ld,\"client_errors\":%ld,\"server_errors\":%ld,"
           "\"broken\":%ld,\"unanswered\":%d,\"late\":%ld,\"connects\":%ld,\"cpu_us\":%lld,\"resident_bytes\":%lld,"
           "\"p50_us\":%d,\"p99_us\":%d,\"first_p50_us\":%d,\"first_p99_us\":%d,"
           "\"events\":%ld,\"event_p50_us\":%d,\"event_p99_us\":%d}\n",
           elapsed, count.completed, count.started, count.ok, count.client_errors, count.server_errors, count.broken,
           in_flight, count.late, count.connects, (long long)cpu, (long long)resident, quantile(&latency, .5),
           quantile(&latency, .99), quantile(&first_byte, .5), quantile(&first_byte, .99), count.events,
           quantile(&event_delay, .5), quantile(&event_delay, .99));
}

/* Open all idle streams and wait until each has answered; the window starts then. */
static int streams_are_open(void) {
    int answered = 0;
    for (int i = 0; i < opened; i++) answered += all[i]->state == BUSY && all[i]->first != 0;
    return answered == option.connections;
}

static void dispatch(int64_t now, int64_t *next_due) {
    struct connection *c;
    if (option.rate > 0) {
        for (; *next_due <= now && *next_due < window_end; *next_due += (int64_t)(1e6 / option.rate)) {
            if (!(c = available())) return; /* no connection: the request stays due, and its time runs */
            if (now - *next_due > 1000) count.late++;
            start(c, *next_due);
        }
    } else {
        while (now < window_end && !(option.idle && opened == option.connections) && (c = available())) start(c, now);
    }
}

static void poll_once(int64_t now, int64_t next_due) {
    static struct epoll_event ready[512];
    int64_t wake = now + SAMPLE_US;
    if (option.rate > 0 && next_due < wake && (free_count || opened < option.connections)) wake = next_due;
    if (window_start > now && window_start < wake) wake = window_start;
    if (window_end > now && window_end < wake) wake = window_end;
    int64_t left = wake > now ? wake - now : 0;
    struct timespec limit = {left / 1000000, left % 1000000 * 1000};
    int found = epoll_pwait2(poller, ready, 512, &limit, NULL);
    for (int i = 0; i < found; i++) {
        struct connection *c = ready[i].data.ptr;
        if (c->state == CLOSED) continue;
        if (ready[i].events & EPOLLOUT) {
            c->writable = 1;
            if (c->state == BUSY) push_request(c);
        }
        if (ready[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) receive(c);
    }
}

static void run(void) {
    int64_t begin = now_us(), next_due = begin, sampled = 0, resident = 0, cpu_at_start = -1, cpu_at_end = -1, ended = 0;
    window_start = begin + (int64_t)(option.warm_up * 1e6);
    window_end = window_start + (int64_t)(option.seconds * 1e6);
    int64_t give_up_at = begin + 60000000;
    if (option.idle) window_start = window_end = INT64_MAX;
    for (;;) {
        int64_t now = now_us();
        if (option.idle && window_end == INT64_MAX) {
            if (streams_are_open()) {
                window_start = now + (int64_t)(option.warm_up * 1e6);
                window_end = window_start + (int64_t)(option.seconds * 1e6);
            } else if (now > give_up_at) {
                fprintf(stderr, "load: the streams did not open within 60 s\n");
                exit(1);
            }
        }
        if (cpu_at_start < 0 && now >= window_start) cpu_at_start = cpu_us();
        if (cpu_at_start >= 0 && cpu_at_end < 0 && now - sampled >= SAMPLE_US) {
            int64_t bytes = resident_bytes();
            sampled = now;
            if (bytes > resident) resident = bytes;
        }
        if (cpu_at_end < 0 && now >= window_end) {
            cpu_at_end = cpu_us();
            ended = now;
        }
        if (cpu_at_end >= 0 && (!in_flight || option.idle || now > window_end + DRAIN_US)) break;
        dispatch(now, &next_due);
        poll_once(now, next_due);
    }
    print_result((double)(ended - window_start) / 1e6, cpu_at_end - cpu_at_start, resident);
}

static void parse(int argc, char **argv) {
    int letter;
    while ((letter = getopt(argc, argv, "c:d:w:r:sik:p:")) > 0) switch (letter) {
        case 'c': option.connections = atoi(optarg); break;
        case 'd': option.seconds = atof(optarg); break;
        case 'w': option.warm_up = atof(optarg); break;
        case 'r': option.rate = atof(optarg); break;
        case 's': option.stream = 1; break;
        case 'i': option.idle = 1; break;
        case 'k': option.key = optarg; break;
        case 'p':
            for (char *pid = strtok(optarg, ","); pid && option.pid_count < PROCESSES; pid = strtok(NULL, ","))
                option.pids[option.pid_count++] = atoi(pid);
            break;
        default: exit(2);
        }
    if (argc - optind != 2 || option.connections < 1) {
        fprintf(stderr, "usage: load [-c N] [-d S] [-w S] [-r RATE] [-s] [-i] [-k KEY] [-p PID,...] PORT BODY_FILE\n");
        exit(2);
    }
    option.port = atoi(argv[optind]);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1);
    parse(argc, argv);
    make_request(argv[optind + 1]);
    poller = epoll_create1(0);
    struct connection *memory = calloc((size_t)option.connections, sizeof *memory);
    all = malloc((size_t)option.connections * sizeof *all);
    free_list = malloc((size_t)option.connections * sizeof *free_list);
    if (!memory || !all || !free_list) abort();
    for (int i = 0; i < option.connections; i++) all[i] = memory + i;
    run();
    return 0;
}

/* What the load generator and the mock engine share: a clock, and finding a header in a request or response head. */
#ifndef COMMON_H
#define COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Microseconds of the monotonic clock, which both programs share: stamps of one are understood by the other. */
static inline int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The value of a header in a head that ends with a NUL; the name starts with "\n" and ends with ":". NULL: not there. */
static inline const char *header(const char *head, const char *name) {
    const char *found = strcasestr(head, name);
    if (!found) return NULL;
    found += strlen(name);
    while (*found == ' ') found++;
    return found;
}

static inline int header_has(const char *head, const char *name, const char *word) {
    const char *value = header(head, name);
    return value && strncasecmp(value, word, strlen(word)) == 0;
}

/* A body as HTTP/1.1 frames it. Feed it bytes; it says which of them are content and when the body has ended. */
enum framing { SIZED, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, UNTIL_CLOSE, ENDED };

struct body {
    enum framing state;
    int64_t left;  /* bytes of content still to come, of the body or of the chunk */
    int line;      /* bytes of the trailer's line so far */
};

static inline void body_start(struct body *b, const char *head, int close_ends_it) {
    const char *length = header(head, "\ncontent-length:");
    b->left = 0;
    b->line = 0;
    if (header_has(head, "\ntransfer-encoding:", "chunked")) {
        b->state = CHUNK_SIZE;
    } else if (length) {
        b->left = atoll(length);
        b->state = b->left ? SIZED : ENDED;
    } else {
        b->state = close_ends_it ? UNTIL_CLOSE : ENDED;
    }
}

/* Take one step in data[0..n): returns the bytes consumed; *content of them, from *start, are content. */
static inline size_t body_feed(struct body *b, const char *data, size_t n, size_t *start, size_t *content) {
    *start = *content = 0;
    size_t take;
    switch (b->state) {
    case SIZED:
    case CHUNK_DATA:
        take = (int64_t)n < b->left ? n : (size_t)b->left;
        b->left -= (int64_t)take;
        *content = take;
        if (!b->left) b->state = b->state == SIZED ? ENDED : CHUNK_END;
        return take;
    case UNTIL_CLOSE:
        *content = n;
        return n;
    case CHUNK_SIZE:
        for (size_t i = 0; i < n; i++) {
            char c = data[i];
            if (c == '\n') {
                b->line = 0;
                b->state = b->left ? CHUNK_DATA : TRAILER;
                return i + 1;
            }
            if (b->line) continue; /* an extension, or the carriage return */
            if (c >= '0' && c <= '9') b->left = b->left * 16 + (c - '0');
            else if ((c | 32) >= 'a' && (c | 32) <= 'f') b->left = b->left * 16 + ((c | 32) - 'a' + 10);
            else b->line = 1;
        }
        return n;
    case CHUNK_END:
        for (size_t i = 0; i < n; i++)
            if (data[i] == '\n') {
                b->state = CHUNK_SIZE;
                b->left = 0;
                return i + 1;
            }
        return n;
    case TRAILER:
        for (size_t i = 0; i < n; i++) {
            if (data[i] == '\n') {
                if (!b->line) {
                    b->state = ENDED;
                    return i + 1;
                }
                b->line = 0;
            } else if (data[i] != '\r') {
                b->line++;
            }
        }
        return n;
    case ENDED:
        break;
    }
    return 0;
}

#endif

/* Within the library: one connection, frames in and out. */
#ifndef WEIR_CONNECTION_H
#define WEIR_CONNECTION_H

#include "frames.h"

#define fail weir_own_fail
#define broken weir_own_broken
#define now_ms weir_own_now_ms
#define now_ns weir_own_now_ns
#define begin weir_own_begin
#define finish weir_own_finish
#define next_frame weir_own_next_frame
#define reply weir_own_reply
#define ask weir_own_ask
#define last_word weir_own_last_word
#define drop weir_own_drop

/* Frames kept, and ids that nobody waits for any more, at most. */
enum { KEPT_LIMIT = 4096 };

/* A frame that arrived while another was waited for. */
typedef struct kept {
    struct kept *next;
    header head;
    uint8_t body[];
} kept;

struct weir_client {
    /* The eventfd, once the daemon has given one; -1 before. */
    int socket, timeout, alarm;
    uint64_t last_id, max_arena;
    uint32_t max_frame;
    /* Of the protocol, as the daemon chose it. */
    uint16_t version;
    writer out;
    /* Bytes read; those before `start` are used up. */
    uint8_t *in;
    size_t start, end, capacity;
    kept *first, **last, *current;
    size_t kept_count;
    /* Of frames whose answer nobody waits for any more. */
    uint64_t abandoned[KEPT_LIMIT];
    size_t abandoned_count;
    uint8_t *arena;
    size_t arena_bytes, arena_used;
    uint16_t refusal;
    char error[1200];
};

/* Notes what went wrong, and returns `status`. */
__attribute__((format(printf, 3, 4)))
weir_status fail(weir_client *client, weir_status status, const char *format, ...);
/* The same; nothing can be sent or read any more. */
weir_status broken(weir_client *client, weir_status status, const char *why);
/* By CLOCK_MONOTONIC, which the daemon has as well. */
uint64_t now_ns(void);
int64_t now_ms(void);

/* Begins a frame in `out`; its fields follow. */
void begin(weir_client *client, uint16_t kind);
/* Sends the frame begun, with a descriptor if it is not negative. */
weir_status finish(weir_client *client, int descriptor);
/* Waits for a whole frame; its body lies in the buffer until the next call. */
weir_status next_frame(weir_client *client, header *head, reader *body, int64_t until);
/* Whether nobody waits for this answer any more; a stream that it grants is given up. */
bool drop(weir_client *client, header head, reader body);
/* Waits for the answer to the frame sent last, keeping everything else that somebody waits for. */
weir_status reply(weir_client *client, int64_t until, header *head, reader *body);
/* Sends the frame begun and waits for an answer of this kind. */
weir_status ask(weir_client *client, uint16_t kind, int descriptor, reader *body);
/* ERROR is the last word on any connection. */
weir_status last_word(weir_client *client, reader body);

#endif

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
#define connect_now weir_own_connect_now
#define ready weir_own_ready
#define remember weir_own_remember
#define forget weir_own_forget
#define holds weir_own_holds
#define present weir_own_present
#define is_there weir_own_is_there

/* Frames kept, and ids that nobody waits for any more, at most. */
enum { KEPT_LIMIT = 4096 };

/* A frame that arrived while another was waited for. */
typedef struct kept {
    struct kept *next;
    header head;
    uint8_t body[];
} kept;

/* A stream to be registered again: the program's own struct, and the body of its REGISTER. */
typedef struct held {
    struct held *next;
    weir_stream *stream;
    /* Whether it is registered on this connection. */
    bool there;
    size_t length;
    uint8_t body[];
} held;

struct weir_client {
    /* The eventfd, once the daemon has given one; -1 before. */
    int socket, timeout, alarm;
    /* That of a connection that has ended: the program may still poll it. */
    int stale_alarm;
    /* Whether nothing can be sent or read any more, and whether another connection is to be opened then. */
    bool ended, again;
    char path[108], name[256];
    held *streams;
    uint32_t mask;
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
    /* Whether it was shared on a connection that has ended: the memory stays, for the program may still write to it. */
    bool arena_stale;
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

/* Opens the connection, and says HELLO. */
weir_status connect_now(weir_client *client);
/* To be called before a frame is begun: opens another connection, with all streams, where the last one has ended and that is
 * wanted. */
weir_status ready(weir_client *client);
/* Notes that the REGISTER in `out` has been granted as `stream`, if it is to be registered again. */
weir_status remember(weir_client *client, weir_stream *stream);
void forget(weir_client *client, const weir_stream *stream);
/* The class of that name, counted from 1; 0 if there is none. */
uint8_t class_of(const weir_stream *stream, const char *name);
/* WEIR_INVALID where streams are registered again, and this is none of those. */
weir_status holds(weir_client *client, const weir_stream *stream);
/* The same, and registers it again where that was refused on this connection. */
weir_status present(weir_client *client, const weir_stream *stream);
/* Whether the daemon may have it, on this connection. */
bool is_there(const weir_client *client, const weir_stream *stream);

#endif

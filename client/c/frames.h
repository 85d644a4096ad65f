/* Within the library: fields to bytes and back. All numbers are little-endian, whatever the machine. */
#ifndef WEIR_FRAMES_H
#define WEIR_FRAMES_H

#include <stdbool.h>

#include "weir.h"

/* A static library has no private names: these must not meet those of a program. */
#define put weir_own_put
#define put_bytes weir_own_put_bytes
#define put_string weir_own_put_string
#define take weir_own_take
#define take_string weir_own_take_string
#define take_reserved weir_own_take_reserved
#define all_read weir_own_all_read
#define read_header weir_own_read_header
#define read_stream weir_own_read_stream
#define read_answer weir_own_read_answer

enum {
    HEADER = 16,
    HELLO = 1, REGISTER, UNREGISTER, SUBMIT, SUBSCRIBE, STATUS, PING, ARENA, SUBMIT_SHARED, ALARM, SUBMIT_AT,
    SUBMIT_SHARED_AT, SUBMIT_OF, SUBMIT_SHARED_OF,
    WELCOME = 128, REGISTERED, UNREGISTERED, RESULT, MISS, SUBSCRIBED, STATUS_REPLY, PONG, REFUSED, FAILED, MAPPED,
    ALARMED, RESULT_LATE,
    EVENT_SAFE_MODE = 160, EVENT_MISSES_LEFT, EVENTS_LOST, EVENT_SUSPENSION
};

/* Writes into a buffer that grows; `failed` once there is no memory or a string is too long. */
typedef struct {
    uint8_t *bytes;
    size_t length, capacity;
    bool failed;
} writer;

void put(writer *out, uint64_t value, int bytes);
void put_bytes(writer *out, const void *bytes, size_t length);
void put_string(writer *out, const char *text);

/* Reads a body in order; `failed` once it is not what it must be. */
typedef struct {
    const uint8_t *at, *end;
    bool failed;
} reader;

uint64_t take(reader *in, int bytes);
/* Copies a string of at most `room - 1` bytes and ends it with 0. */
void take_string(reader *in, char *text, size_t room);
/* Bytes that must be 0. */
void take_reserved(reader *in, int bytes);
/* Whether nothing failed and nothing is left. */
bool all_read(const reader *in);

typedef struct {
    uint32_t length;
    uint16_t kind, flags;
    uint64_t id;
} header;

header read_header(const uint8_t *bytes);
/* These return false for a body that is not one of its kind. */
bool read_stream(reader *in, weir_stream *stream);
bool read_answer(header head, reader in, weir_answer *answer);

#endif

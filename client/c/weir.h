/* Client of the Weir inference daemon: C11 and libc only. docs/protocol.md specifies what it speaks.
 *
 * Every call that can fail returns a weir_status; weir_error() then says why in words. A client belongs to one
 * thread at a time, and to the process that opened it. Nothing waits longer than the timeout of the client, 5 s unless
 * set otherwise, but weir_infer and weir_receive, which say how long.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SOCKET "/run/weir/weir.sock"
#define WEIR_MAX_TENSORS 16
#define WEIR_MAX_DIMENSIONS 8
#define WEIR_MAX_CLASSES 16
/* Stands where misses are counted if the stream has no constraint. */
#define WEIR_NO_CONSTRAINT UINT32_MAX

typedef enum {
    WEIR_OK = 0,
    WEIR_TIMEOUT,  /* nothing within the time allowed; the connection stays, an answer that comes later is dropped, but
                      for one to weir_infer */
    WEIR_REFUSED,  /* the daemon did not grant it; the connection stays */
    WEIR_INVALID,  /* an argument that cannot be sent; nothing was sent */
    WEIR_CLOSED,   /* the connection has ended; open another, or see weir_set_reconnect() */
    WEIR_PROTOCOL, /* the daemon sent what is no frame; as WEIR_CLOSED */
    WEIR_SYSTEM    /* a call of the system failed */
} weir_status;

typedef enum {
    WEIR_F32 = 1,
    WEIR_F16 = 2,
    WEIR_I64 = 3,
    WEIR_U8 = 4,
    WEIR_F64 = 5,
    WEIR_I8 = 6,
    WEIR_I32 = 7,
    WEIR_BOOL = 8
} weir_type;

typedef struct {
    char name[256];
    uint16_t type; /* weir_type, or a number of a later version */
    uint8_t dimensions;
    uint32_t shape[WEIR_MAX_DIMENSIONS];
    size_t bytes;  /* 0 if the type is not known */
    size_t offset; /* where it begins within a payload or output, a multiple of 8 */
} weir_tensor;

/* A class of requests of a service. */
typedef struct {
    char name[256];
    uint64_t deadline_ns; /* from arrival to answer: a later one is late */
    uint64_t reach_ns;    /* for how long an answer is delivered: the same, unless late ones are worth something */
} weir_class;

typedef struct {
    uint32_t id;
    uint32_t input_bytes, output_bytes;
    uint64_t deadline_ns;
    uint32_t guaranteed, of; /* so many requests of so many; 0 for best effort */
    float accuracy;          /* 0 to 1, NaN where unknown */
    char variant[256];
    uint8_t inputs, outputs;
    weir_tensor input[WEIR_MAX_TENSORS], output[WEIR_MAX_TENSORS];
    /* For the caller to set: how soon after its sending a request's answer is wanted, if sooner than the deadline; 0, as it is
     * registered, for the deadline. What is not answered by then is missed. */
    uint64_t within_ns;
    /* The classes of requests that the service has, 0 if they are all alike; and that of requests which name none. */
    uint8_t classes, own_class;
    weir_class of_class[WEIR_MAX_CLASSES];
    /* That of weir_set_class(), counted from 1; 0 for none. */
    uint8_t asked_class;
} weir_stream;

/* Whether values that lie in this shape are the tensor's: as many in another layout are not. Dimensions of 1 do not matter. */
bool weir_has_shape(const weir_tensor *tensor, const uint32_t *shape, size_t dimensions);

/* At most 8 on a stream; all hold together. */
typedef struct {
    uint8_t form;
    uint32_t a, k;
} weir_constraint;

/* At most 4 on a stream; all hold together. */
typedef struct {
    uint8_t form;
    uint64_t a, b;
} weir_arrivals;

weir_constraint weir_any_miss(uint32_t misses, uint32_t window); /* at most `misses` of any `window` */
weir_constraint weir_any_hit(uint32_t hits, uint32_t window);    /* at least `hits` of any `window` */
weir_constraint weir_row_miss(uint32_t misses);                  /* at most `misses` in a row */
weir_constraint weir_row_hit(uint32_t hits, uint32_t window);    /* `hits` in a row in any `window` */
weir_arrivals weir_window(uint64_t count, uint64_t length_ns);
weir_arrivals weir_periodic(uint64_t period_ns, uint64_t jitter_ns);
weir_arrivals weir_token_bucket(uint64_t burst, uint64_t period_ns);

typedef enum {
    WEIR_RESULT = 1,     /* an output, in time, or late where that is worth something */
    WEIR_MISS,           /* no output in time: see code */
    WEIR_NOT_TAKEN,      /* the daemon refused the request: see code and text */
    WEIR_SAFE_MODE,      /* how a service's promises stand has changed: see code, a weir_state, and cause */
    WEIR_MISSES_LEFT,    /* a stream has few misses left */
    WEIR_EVENTS_LOST,    /* so many events did not arrive: see count */
    WEIR_SUSPENSION      /* the promise to one stream is suspended, or holds again: see code, a weir_stream_state, and cause */
} weir_kind;

/* How the promises of a service stand: in WEIR_SUSPENDED and above they do not hold. */
typedef enum { WEIR_NORMAL = 1, WEIR_WARNING, WEIR_SUSPENDED, WEIR_LOST } weir_state;

/* How the promise to one stream stands, as far as the stream itself is concerned: in WEIR_STREAM_SUSPENDED, and in any state
 * that is not here, nothing is promised. */
typedef enum {
    WEIR_STREAM_NORMAL = 1, WEIR_STREAM_SUSPENDED,
    /* One of the weaker promises behind the stream's own is in force: the first, the second, ... */
    WEIR_STREAM_DEGRADED_1, WEIR_STREAM_DEGRADED_2, WEIR_STREAM_DEGRADED_3, WEIR_STREAM_DEGRADED_4
} weir_stream_state;

/* Bits of weir_subscribe(). */
enum { WEIR_EVENTS_SAFE_MODE = 1, WEIR_EVENTS_MISSES_LEFT = 2, WEIR_EVENTS_SUSPENSION = 4 };

/* What arrived; fields without a meaning for its kind are 0. */
typedef struct {
    weir_kind kind;
    uint64_t id; /* of the request; 0 for events */
    uint32_t stream;
    uint32_t misses_left; /* WEIR_NO_CONSTRAINT without one */
    uint64_t sequence;    /* of the request in its stream, of the change among those of its kind in its service */
    uint64_t queued_ns, run_ns;
    uint16_t batch, variant;
    uint32_t skipped; /* requests just before that were not executed, and that a model with state does not remember */
    bool late; /* of an output: later than its class wants it, which it is worth less for */
    uint16_t code, cause;
    uint64_t entered_ns, limit, seen, window_ns; /* the evidence for a change */
    uint64_t breaches; /* of the service since its start, of a stream since it was registered */
    uint64_t count;
    weir_constraint constraint;
    /* Until the next call with this client, at any address: memcpy it. Empty if it lies in the arena. */
    const uint8_t *output;
    size_t output_bytes;
    char service[256], stream_name[256], text[1025];
} weir_answer;

/* Room in the arena for one request and its answer, aligned to 64 bytes. */
typedef struct {
    uint8_t *input, *output;
    uint64_t input_at, output_at;
} weir_place;

typedef struct weir_client weir_client;

/* Opens a connection. *client is set even on failure, unless memory is short, so that weir_error() can say why;
 * weir_close() frees it in either case. `name` is for the daemon's logs. */
weir_status weir_open(weir_client **client, const char *path, const char *name);
void weir_close(weir_client *client);

/* What went wrong last, in words; never NULL. */
const char *weir_error(const weir_client *client);
/* The code of the last refusal, 0 without one; weir_refusal() names it. */
uint16_t weir_refusal_code(const weir_client *client);
/* The socket, to be polled for POLLIN. Before polling, call weir_receive() with a timeout of 0 until it returns
 * WEIR_TIMEOUT: what it has read already makes no socket readable. */
int weir_fd(const weir_client *client);
/* Whether the client is to connect again by itself, off unless set. Then the call that finds the connection ended fails as ever,
 * and each one after it tries once to connect, to register all streams and to subscribe to what was subscribed to, and fails
 * if one of these does: a control loop needs no other rhythm for it than its own. Names that are in use are asked for again for up
 * to 0.6 s. A stream that is registered from then on is filled in anew where it lies, so it stays there until weir_unregister or weir_close, and no copy of it is taken. One that
 * is refused then keeps no other from going on: each call for it asks once more, and tells why if that is refused; one whose
 * tensors have become others is WEIR_INVALID. weir_unregister gives it up for good, also where the daemon could not be told. What was in flight is lost, answers not received among it, and so are an
 * arena and an alarm: their memory and descriptor stay until the next ones, or weir_close(). weir_fd() keeps its number; an epoll
 * must be told of it again. With it on, a client that weir_open() could not connect can be used as well. */
void weir_set_reconnect(weir_client *client, bool again);
/* At least 1. */
void weir_set_timeout(weir_client *client, int milliseconds);
/* Bytes of the largest arena that the daemon accepts; 0 where it accepts none. */
uint64_t weir_max_arena(const weir_client *client);

/* Registers a stream. Without constraints it is best effort, or one reserved by the daemon's configuration. After
 * WEIR_TIMEOUT a stream that is granted late is given up again; its name may be in use until then. */
weir_status weir_register(weir_client *client, const char *service, const char *name,
                          const weir_constraint *constraints, size_t constraint_count,
                          const weir_arrivals *arrivals, size_t arrivals_count, weir_stream *stream);
/* Requests of the stream are of this class from now on; of the stream's own if NULL. WEIR_INVALID if the service has none of that
 * name. */
weir_status weir_set_class(weir_client *client, weir_stream *stream, const char *name);
weir_status weir_unregister(weir_client *client, const weir_stream *stream);
/* Chooses events, by their bits. They arrive by weir_receive(). */
weir_status weir_subscribe(weir_client *client, uint32_t mask);
/* An eventfd that counts the changes of safe mode and the suspensions that are subscribed to, one of them at least;
 * once on a connection. Poll it for POLLIN and read 8 bytes, a uint64_t: so many changes since it was last read. The events tell what they were, an instant
 * before or after. It does not tell that the connection has ended: poll weir_fd() as well. It stays
 * open until weir_close(). */
weir_status weir_alarm(weir_client *client, int *fd);
weir_status weir_ping(weir_client *client);

/* Shares so many bytes with the daemon, once on a connection. They last until weir_close(). */
weir_status weir_share(weir_client *client, size_t bytes);
/* Sets room aside in the arena for one request of the stream, for as long as the client lasts. */
weir_status weir_place_for(weir_client *client, const weir_stream *stream, weir_place *place);

/* Sends one request without waiting; *id, if not NULL, is that of its answer. `payload` is `input_bytes` of the
 * stream, each tensor at its offset. The place must be left alone until the answer has come. */
weir_status weir_submit(weir_client *client, const weir_stream *stream, const void *payload, uint64_t *id);
weir_status weir_submit_shared(weir_client *client, const weir_stream *stream, const weir_place *place,
                               uint64_t *id);
/* The next answer or event: waits so long for it, for ever if negative, not at all if 0. */
weir_status weir_receive(weir_client *client, weir_answer *answer, int milliseconds);
/* Sends one request and waits for its answer, at most its deadline and the timeout; keeps what else arrives for
 * weir_receive(), as all calls do that wait: up to 4096 answers and events, with more the connection ends. After
 * WEIR_TIMEOUT the answer, if it still comes, is one for weir_receive(). */
weir_status weir_infer(weir_client *client, const weir_stream *stream, const void *payload, weir_answer *answer);
weir_status weir_infer_shared(weir_client *client, const weir_stream *stream, const weir_place *place,
                              weir_answer *answer);

/* The stable words of the protocol for codes; "unknown" for those of later versions. */
const char *weir_miss(uint16_t code);
const char *weir_refusal(uint16_t code);
const char *weir_cause(uint16_t code);

#ifdef __cplusplus
}
#endif
#endif

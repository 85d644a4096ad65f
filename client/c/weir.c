#define _GNU_SOURCE
#include "weir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "connection.h"

enum { LINE = 64, SENT_VERSION = 3, WITHIN_VERSION = 4 };

static weir_status done(weir_client *client, uint16_t kind, int descriptor) {
    reader body;
    weir_status status = ask(client, kind, descriptor, &body);
    if (status == WEIR_OK && !all_read(&body))
        return broken(client, WEIR_PROTOCOL, "the daemon's answer has a body, it must be empty");
    return status;
}

weir_status weir_open(weir_client **out, const char *path, const char *name) {
    weir_client *client = *out = calloc(1, sizeof *client);
    if (client == NULL) return WEIR_SYSTEM;
    client->timeout = 5000;
    client->socket = client->alarm = client->stale_alarm = -1;
    client->ended = true;
    client->last = &client->first;
    if (strlen(path) >= sizeof client->path) return fail(client, WEIR_INVALID, "%s: above 107 bytes", path);
    if (strlen(name) >= sizeof client->name) return fail(client, WEIR_INVALID, "a name is above 255 bytes");
    strcpy(client->path, path);
    strcpy(client->name, name);
    return connect_now(client);
}

void weir_close(weir_client *client) {
    if (client == NULL) return;
    if (client->socket >= 0) close(client->socket);
    if (client->alarm >= 0) close(client->alarm);
    if (client->stale_alarm >= 0) close(client->stale_alarm);
    while (client->streams != NULL) forget(client, client->streams->stream);
    if (client->arena != NULL) munmap(client->arena, client->arena_bytes);
    while (client->first != NULL) {
        kept *frame = client->first;
        client->first = frame->next;
        free(frame);
    }
    free(client->current);
    free(client->in);
    free(client->out.bytes);
    free(client);
}

const char *weir_error(const weir_client *client) { return client == NULL ? "memory is short" : client->error; }
uint16_t weir_refusal_code(const weir_client *client) { return client->refusal; }
int weir_fd(const weir_client *client) { return client->socket; }
uint64_t weir_max_arena(const weir_client *client) { return client->max_arena; }

void weir_set_timeout(weir_client *client, int milliseconds) {
    /* For the socket 0 would be for ever. */
    if (milliseconds < 1) milliseconds = 1;
    struct timeval limit = {milliseconds / 1000, milliseconds % 1000 * 1000};
    client->timeout = milliseconds;
    setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

weir_status weir_register(weir_client *client, const char *service, const char *name,
                          const weir_constraint *constraints, size_t constraint_count,
                          const weir_arrivals *arrivals, size_t arrivals_count, weir_stream *stream) {
    if (constraint_count > 8 || arrivals_count > 4)
        return fail(client, WEIR_INVALID, "%zu constraints and %zu arrival bounds, at most 8 and 4", constraint_count,
                    arrivals_count);
    weir_status status = ready(client);
    if (status != WEIR_OK) return status;
    begin(client, REGISTER);
    writer *out = &client->out;
    put_string(out, service);
    put_string(out, name);
    put(out, constraint_count, 1);
    for (size_t i = 0; i < constraint_count; i++) {
        put(out, constraints[i].form, 1);
        put(out, constraints[i].a, 4);
        put(out, constraints[i].k, 4);
    }
    put(out, arrivals_count, 1);
    for (size_t i = 0; i < arrivals_count; i++) {
        put(out, arrivals[i].form, 1);
        put(out, arrivals[i].a, 8);
        put(out, arrivals[i].b, 8);
    }
    reader body;
    status = ask(client, REGISTERED, -1, &body);
    if (status == WEIR_OK && !read_stream(&body, stream))
        return broken(client, WEIR_PROTOCOL, "the daemon's REGISTERED cannot be read");
    return status == WEIR_OK ? remember(client, stream) : status;
}

bool weir_has_shape(const weir_tensor *tensor, const uint32_t *shape, size_t dimensions) {
    size_t own = 0, given = 0;
    for (;;) {
        while (own < tensor->dimensions && tensor->shape[own] == 1) own++;
        while (given < dimensions && shape[given] == 1) given++;
        if (own == tensor->dimensions || given == dimensions) return own == tensor->dimensions && given == dimensions;
        if (tensor->shape[own++] != shape[given++]) return false;
    }
}

weir_status weir_unregister(weir_client *client, const weir_stream *stream) {
    weir_status status = holds(client, stream);
    if (status != WEIR_OK) return status;
    /* A connection that has ended has given it up. */
    const bool there = is_there(client, stream);
    forget(client, stream);
    if (!there) return WEIR_OK;
    begin(client, UNREGISTER);
    put(&client->out, stream->id, 4);
    return done(client, UNREGISTERED, -1);
}

weir_status weir_set_class(weir_client *client, weir_stream *stream, const char *name) {
    uint8_t asked = name == NULL ? 0 : class_of(stream, name);
    if (name != NULL && asked == 0) return fail(client, WEIR_INVALID, "the service has no class %s", name);
    stream->asked_class = asked;
    return WEIR_OK;
}

weir_status weir_subscribe(weir_client *client, uint32_t mask) {
    weir_status status = ready(client);
    if (status != WEIR_OK) return status;
    begin(client, SUBSCRIBE);
    put(&client->out, mask, 4);
    status = done(client, SUBSCRIBED, -1);
    if (status == WEIR_OK) client->mask = mask;
    return status;
}

weir_status weir_alarm(weir_client *client, int *fd) {
    weir_status status = ready(client);
    if (status != WEIR_OK) return status;
    begin(client, ALARM);
    status = done(client, ALARMED, -1);
    if (status == WEIR_OK && client->alarm < 0)
        return broken(client, WEIR_PROTOCOL, "the daemon's ALARMED came without a descriptor");
    if (status == WEIR_OK) *fd = client->alarm;
    return status;
}

weir_status weir_ping(weir_client *client) {
    weir_status status = ready(client);
    if (status != WEIR_OK) return status;
    begin(client, PING);
    return done(client, PONG, -1);
}

static weir_status hand_over(weir_client *client, int file, size_t bytes) {
    if (ftruncate(file, (off_t)bytes) != 0 || fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return fail(client, WEIR_SYSTEM, "an arena of %zu bytes: %s", bytes, strerror(errno));
    void *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (arena == MAP_FAILED) return fail(client, WEIR_SYSTEM, "mmap: %s", strerror(errno));
    begin(client, ARENA);
    put(&client->out, bytes, 8);
    weir_status status = done(client, MAPPED, file);
    if (status != WEIR_OK) {
        munmap(arena, bytes);
        return status;
    }
    if (client->arena != NULL) munmap(client->arena, client->arena_bytes);
    client->arena = arena;
    client->arena_bytes = bytes;
    client->arena_used = 0;
    client->arena_stale = false;
    return WEIR_OK;
}

weir_status weir_share(weir_client *client, size_t bytes) {
    weir_status status = ready(client);
    if (status != WEIR_OK) return status;
    if (client->arena != NULL && !client->arena_stale) return fail(client, WEIR_INVALID, "this connection shares an arena already");
    if (bytes == 0) return fail(client, WEIR_INVALID, "an arena of 0 bytes, at least 1 is needed");
    int file = memfd_create("weir-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return fail(client, WEIR_SYSTEM, "memfd_create: %s", strerror(errno));
    status = hand_over(client, file, bytes);
    close(file);
    return status;
}

static size_t line_up(size_t at) { return (at + LINE - 1) / LINE * LINE; }

weir_status weir_place_for(weir_client *client, const weir_stream *stream, weir_place *place) {
    size_t input = client->arena_used, output = line_up(input + stream->input_bytes);
    size_t end = line_up(output + stream->output_bytes);
    if (client->arena_stale) return fail(client, WEIR_INVALID, "the arena was lost with its connection: share another");
    if (client->arena == NULL || output + stream->output_bytes > client->arena_bytes)
        return fail(client, WEIR_INVALID, "a place of %zu bytes does not fit the arena, %zu of %zu are used", end - input,
                    input, client->arena_bytes);
    *place = (weir_place){client->arena + input, client->arena + output, input, output};
    client->arena_used = end;
    return WEIR_OK;
}

static weir_status sent(weir_client *client, uint64_t *id) {
    weir_status status = finish(client, -1);
    if (status == WEIR_OK && id != NULL) *id = client->last_id;
    return status;
}

/* The kinds of one request: as it is, with the instant at which it is sent, and of a class. */
typedef struct {
    uint16_t plain, at, of;
} kinds;

/* A daemon that can read it is told that the request is sent now, how soon its answer is wanted, and its class if it has one. */
static weir_status begin_submit(weir_client *client, const weir_stream *stream, kinds kind) {
    weir_status status = ready(client);
    if (status == WEIR_OK) status = present(client, stream);
    if (status != WEIR_OK) return status;
    bool says_when = client->version >= SENT_VERSION;
    uint64_t within = stream->within_ns / 1000;
    if (stream->within_ns != 0 && client->version < WITHIN_VERSION)
        return fail(client, WEIR_INVALID, "the daemon speaks version %u, a request has a deadline of its own from 4 on",
                    (unsigned)client->version);
    if (stream->within_ns != 0 && within == 0) within = 1;
    if (within > UINT32_MAX) within = UINT32_MAX;
    begin(client, stream->asked_class != 0 ? kind.of : says_when ? kind.at : kind.plain);
    put(&client->out, stream->id, 4);
    put(&client->out, within, 4);
    if (says_when) put(&client->out, now_ns(), 8);
    /* Classes are told from the version on that has them. */
    if (stream->asked_class != 0) put(&client->out, stream->asked_class - 1, 8);
    return WEIR_OK;
}

weir_status weir_submit(weir_client *client, const weir_stream *stream, const void *payload, uint64_t *id) {
    weir_status status = begin_submit(client, stream, (kinds){SUBMIT, SUBMIT_AT, SUBMIT_OF});
    if (status != WEIR_OK) return status;
    put_bytes(&client->out, payload, stream->input_bytes);
    return sent(client, id);
}

weir_status weir_submit_shared(weir_client *client, const weir_stream *stream, const weir_place *place,
                               uint64_t *id) {
    weir_status status = begin_submit(client, stream, (kinds){SUBMIT_SHARED, SUBMIT_SHARED_AT, SUBMIT_SHARED_OF});
    if (status != WEIR_OK) return status;
    /* One of the arena before would be taken for one of this. */
    if (client->arena_stale || client->arena == NULL || place->output != client->arena + place->output_at)
        return fail(client, WEIR_INVALID, "the arena of this place was lost with its connection: share another");
    put(&client->out, place->input_at, 8);
    put(&client->out, place->output_at, 8);
    return sent(client, id);
}

static weir_status read_as_answer(weir_client *client, header head, reader body, weir_answer *answer) {
    if (head.kind == FAILED) return last_word(client, body);
    if (!read_answer(head, body, answer))
        return broken(client, WEIR_PROTOCOL, "the daemon sent a frame that has no place here");
    return WEIR_OK;
}

weir_status weir_receive(weir_client *client, weir_answer *answer, int milliseconds) {
    header head;
    reader body;
    kept *frame = client->first;
    if (frame != NULL) {
        client->first = frame->next;
        if (client->first == NULL) client->last = &client->first;
        client->kept_count--;
        free(client->current);
        client->current = frame;
        return read_as_answer(client, frame->head, (reader){frame->body, frame->body + frame->head.length, false}, answer);
    }
    weir_status status = ready(client);
    if (status != WEIR_OK) return status;
    int64_t until = milliseconds < 0 ? -1 : now_ms() + milliseconds;
    do status = next_frame(client, &head, &body, until);
    while (status == WEIR_OK && drop(client, head, body));
    return status == WEIR_OK ? read_as_answer(client, head, body, answer) : status;
}

static weir_status outcome(weir_client *client, const weir_stream *stream, uint32_t output_bytes, weir_status sent,
                           weir_answer *answer) {
    header head;
    reader body;
    if (sent != WEIR_OK) return sent;
    int64_t wait = client->timeout + (int64_t)(stream->deadline_ns / 1000000);
    weir_status status = reply(client, now_ms() + wait, &head, &body);
    if (status == WEIR_OK) status = read_as_answer(client, head, body, answer);
    if (status == WEIR_OK && answer->kind == WEIR_RESULT && answer->output_bytes != output_bytes)
        return broken(client, WEIR_PROTOCOL, "the daemon's output is not as long as it was told");
    if (status != WEIR_OK || answer->kind != WEIR_NOT_TAKEN) return status;
    client->refusal = answer->code;
    return fail(client, WEIR_REFUSED, "refused, %s: %s", weir_refusal(answer->code), answer->text);
}

weir_status weir_infer(weir_client *client, const weir_stream *stream, const void *payload, weir_answer *answer) {
    return outcome(client, stream, stream->output_bytes, weir_submit(client, stream, payload, NULL), answer);
}

weir_status weir_infer_shared(weir_client *client, const weir_stream *stream, const weir_place *place,
                              weir_answer *answer) {
    return outcome(client, stream, 0, weir_submit_shared(client, stream, place, NULL), answer);
}

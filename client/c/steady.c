#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A connection is opened, and where that is wanted opened again after it has ended, with the streams that it had. */

enum { FIRST_FRAME = 4 << 20, OLDEST_VERSION = 1, VERSION = 5, NAME_IN_USE = 6 };
/* Milliseconds between attempts to register a stream whose name is in use: mostly by the connection before, whose end the daemon has
 * not seen yet. The first is doubled up to the last. */
enum { FIRST_PAUSE = 10, LAST_PAUSE = 320 };

static weir_status hello(weir_client *client) {
    reader body;
    char daemon[256];
    begin(client, HELLO);
    put_bytes(&client->out, "WEIR", 4);
    put(&client->out, OLDEST_VERSION, 2);
    put(&client->out, VERSION, 2);
    put_string(&client->out, client->name);
    weir_status status = ask(client, WELCOME, -1, &body);
    if (status != WEIR_OK) return status;
    uint64_t version = take(&body, 2);
    take_reserved(&body, 2);
    client->max_frame = (uint32_t)take(&body, 4);
    client->max_arena = take(&body, 8);
    take_string(&body, daemon, sizeof daemon);
    if (!all_read(&body) || version < OLDEST_VERSION || version > VERSION) {
        char why[64];
        snprintf(why, sizeof why, "the daemon's WELCOME is not of version %d to %d", OLDEST_VERSION, VERSION);
        return broken(client, WEIR_PROTOCOL, why);
    }
    client->version = (uint16_t)version;
    return WEIR_OK;
}

/* Another socket, under the number of the one before: a program may poll that. */
static weir_status make_socket(weir_client *client) {
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) return fail(client, WEIR_SYSTEM, "socket: %s", strerror(errno));
    if (client->socket < 0) {
        client->socket = made;
        return WEIR_OK;
    }
    int moved = dup3(made, client->socket, O_CLOEXEC);
    close(made);
    return moved < 0 ? fail(client, WEIR_SYSTEM, "dup3: %s", strerror(errno)) : WEIR_OK;
}

weir_status connect_now(weir_client *client) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    weir_status status = make_socket(client);
    if (status != WEIR_OK) return status;
    strcpy(address.sun_path, client->path);
    weir_set_timeout(client, client->timeout);
    client->max_frame = FIRST_FRAME;
    int connected;
    do connected = connect(client->socket, (struct sockaddr *)&address, sizeof address);
    while (connected != 0 && errno == EINTR);
    if (connected != 0)
        return fail(client, WEIR_SYSTEM, "%s: %s (is the daemon running, and may this user connect?)", client->path,
                    strerror(errno));
    client->ended = false;
    status = hello(client);
    if (status != WEIR_OK) client->ended = true;
    return status;
}

/* Nothing of the connection before has a meaning on the next one. */
static void leave_behind(weir_client *client) {
    while (client->first != NULL) {
        kept *frame = client->first;
        client->first = frame->next;
        free(frame);
    }
    client->last = &client->first;
    client->kept_count = client->abandoned_count = client->start = client->end = 0;
    if (client->alarm >= 0) {
        if (client->stale_alarm >= 0) close(client->stale_alarm);
        client->stale_alarm = client->alarm;
        client->alarm = -1;
    }
    client->arena_stale = client->arena != NULL;
    for (held *stream = client->streams; stream != NULL; stream = stream->next) stream->there = false;
}

uint8_t class_of(const weir_stream *stream, const char *name) {
    for (uint8_t i = 0; i < stream->classes; i++)
        if (strcmp(stream->of_class[i].name, name) == 0) return (uint8_t)(i + 1);
    return 0;
}

static bool alike(const weir_tensor *one, const weir_tensor *other, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (one[i].type != other[i].type || one[i].dimensions != other[i].dimensions ||
            memcmp(one[i].shape, other[i].shape, one[i].dimensions * sizeof *one[i].shape) != 0)
            return false;
    return true;
}

/* The daemon has granted what the program cannot use: it need not hold it. */
static weir_status turn_down(weir_client *client, uint32_t id, const char *why) {
    reader body;
    begin(client, UNREGISTER);
    put(&client->out, id, 4);
    weir_status status = ask(client, UNREGISTERED, -1, &body);
    return status == WEIR_OK ? fail(client, WEIR_INVALID, "%s", why) : status;
}

static weir_status register_again(weir_client *client, held *stream) {
    reader body;
    weir_stream now, *before = stream->stream;
    begin(client, REGISTER);
    put_bytes(&client->out, stream->body, stream->length);
    weir_status status = ask(client, REGISTERED, -1, &body);
    if (status != WEIR_OK) return status;
    if (!read_stream(&body, &now)) return broken(client, WEIR_PROTOCOL, "the daemon's REGISTERED cannot be read");
    /* The program's payloads are as long as they were. */
    if (now.inputs != before->inputs || now.outputs != before->outputs ||
        !alike(now.input, before->input, now.inputs) || !alike(now.output, before->output, now.outputs))
        return turn_down(client, now.id, "a stream takes or gives other tensors than when it was registered");
    now.within_ns = before->within_ns;
    /* It may have another number. */
    const char *asked = before->asked_class == 0 ? NULL : before->of_class[before->asked_class - 1].name;
    if (asked != NULL && (now.asked_class = class_of(&now, asked)) == 0) {
        char why[320];
        snprintf(why, sizeof why, "the service has no class %s any more", asked);
        return turn_down(client, now.id, why);
    }
    *before = now;
    stream->there = true;
    return WEIR_OK;
}

weir_status ready(weir_client *client) {
    if (!client->ended || !client->again) return WEIR_OK;
    leave_behind(client);
    weir_status status = connect_now(client);
    int pause = FIRST_PAUSE;
    for (held *stream = client->streams; status == WEIR_OK && stream != NULL; stream = stream->next) {
        while ((status = register_again(client, stream)) == WEIR_REFUSED && client->refusal == NAME_IN_USE &&
               pause <= LAST_PAUSE) {
            poll(NULL, 0, pause);
            pause *= 2;
        }
        /* What is wrong with one stream is told by the calls for it; the others go on. */
        if (status == WEIR_REFUSED || status == WEIR_INVALID) status = WEIR_OK;
    }
    if (status == WEIR_OK && client->mask != 0) {
        reader body;
        begin(client, SUBSCRIBE);
        put(&client->out, client->mask, 4);
        status = ask(client, SUBSCRIBED, -1, &body);
    }
    /* Not half a connection: the next call begins anew. */
    if (status != WEIR_OK) {
        shutdown(client->socket, SHUT_RDWR);
        client->ended = true;
    }
    return status;
}

weir_status remember(weir_client *client, weir_stream *stream) {
    forget(client, stream);
    if (!client->again) return WEIR_OK;
    size_t length = client->out.length - HEADER;
    held *own = malloc(sizeof *own + length);
    if (own == NULL) return broken(client, WEIR_SYSTEM, "memory is short");
    own->next = NULL;
    own->stream = stream;
    own->there = true;
    own->length = length;
    memcpy(own->body, client->out.bytes + HEADER, length);
    held **last = &client->streams;
    while (*last != NULL) last = &(*last)->next;
    *last = own;
    return WEIR_OK;
}

void forget(weir_client *client, const weir_stream *stream) {
    for (held **at = &client->streams; *at != NULL; at = &(*at)->next) {
        held *own = *at;
        if (own->stream != stream) continue;
        *at = own->next;
        free(own);
        return;
    }
}

static held *find(const weir_client *client, const weir_stream *stream) {
    held *own = client->streams;
    while (own != NULL && own->stream != stream) own = own->next;
    return own;
}

bool is_there(const weir_client *client, const weir_stream *stream) {
    const held *own = find(client, stream);
    return !client->again || (!client->ended && own != NULL && own->there);
}

weir_status present(weir_client *client, const weir_stream *stream) {
    held *own = find(client, stream);
    if (!client->again || own == NULL || own->there) return holds(client, stream);
    return register_again(client, own);
}

weir_status holds(weir_client *client, const weir_stream *stream) {
    if (find(client, stream) != NULL || !client->again) return WEIR_OK;
    return fail(client, WEIR_INVALID,
                "no stream that was registered since weir_set_reconnect, or a copy of one: pass what weir_register was given");
}

void weir_set_reconnect(weir_client *client, bool again) { client->again = again; }

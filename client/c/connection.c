#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

weir_status fail(weir_client *client, weir_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(client->error, sizeof client->error, format, arguments);
    va_end(arguments);
    return status;
}

weir_status broken(weir_client *client, weir_status status, const char *why) {
    if (client->socket >= 0) shutdown(client->socket, SHUT_RDWR);
    client->ended = true;
    return fail(client, status, "%s", why);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int64_t now_ms(void) { return (int64_t)(now_ns() / 1000000); }

static void begin_with(weir_client *client, uint16_t kind, uint64_t id) {
    client->out.length = 0;
    client->out.failed = false;
    put(&client->out, 0, 4);
    put(&client->out, kind, 2);
    put(&client->out, 0, 2);
    put(&client->out, id, 8);
}

void begin(weir_client *client, uint16_t kind) {
    client->refusal = 0;
    begin_with(client, kind, ++client->last_id);
}

weir_status finish(weir_client *client, int descriptor) {
    writer *out = &client->out;
    if (out->failed) return fail(client, WEIR_INVALID, "a name is above 255 bytes, or memory is short");
    size_t length = out->length - HEADER;
    if (length > client->max_frame)
        return fail(client, WEIR_INVALID, "the frame has %zu bytes, the daemon takes %u: share an arena", length,
                    (unsigned)client->max_frame);
    for (int i = 0; i < 4; i++) out->bytes[i] = (uint8_t)(length >> 8 * i);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    for (size_t sent = 0; sent < out->length;) {
        struct iovec part = {out->bytes + sent, out->length - sent};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (descriptor >= 0 && sent == 0) {
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof control.bytes;
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
        }
        ssize_t count = sendmsg(client->socket, &message, MSG_NOSIGNAL);
        if (count >= 0) {
            sent += (size_t)count;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            /* What the daemon said last may still be read. */
            client->ended = true;
            return fail(client, WEIR_CLOSED, "the connection was closed by the daemon");
        } else if (errno == EAGAIN) {
            return broken(client, WEIR_CLOSED, "the socket took nothing in time: receive answers while sending");
        } else if (errno != EINTR) {
            /* Part of the frame may be out: nothing can follow it. */
            return broken(client, WEIR_SYSTEM, strerror(errno));
        }
    }
    return WEIR_OK;
}

/* Reads into the room there is, and keeps the descriptor that may come along: the daemon gives one, with ALARMED. */
static ssize_t receive(weir_client *client) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec room = {client->in + client->end, client->capacity - client->end};
    /* Less than the space there is, which the kernel would fill with a second one. */
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t count = recvmsg(client->socket, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = count < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
        /* The caller polls the first one: whatever else comes, it stays. */
        if (client->alarm >= 0) close(descriptor);
        else client->alarm = descriptor;
    }
    return count;
}

weir_status next_frame(weir_client *client, header *head, reader *body, int64_t until) {
    for (;;) {
        size_t there = client->end - client->start, wanted = HEADER;
        if (there >= HEADER) {
            *head = read_header(client->in + client->start);
            if (head->length > client->max_frame || head->flags != 0)
                return broken(client, WEIR_PROTOCOL, "the daemon sent what is no frame of this protocol");
            wanted += head->length;
            if (there >= wanted) {
                const uint8_t *at = client->in + client->start + HEADER;
                *body = (reader){at, at + head->length, false};
                client->start += wanted;
                return WEIR_OK;
            }
        }
        if (client->start > 0) memmove(client->in, client->in + client->start, there);
        client->start = 0;
        client->end = there;
        if (client->capacity < wanted + 4096) {
            uint8_t *in = realloc(client->in, wanted + 4096);
            if (in == NULL) return fail(client, WEIR_SYSTEM, "memory is short");
            client->in = in;
            client->capacity = wanted + 4096;
        }
        int64_t left = until < 0 ? -1 : until - now_ms();
        if (until >= 0 && left < 0) left = 0;
        struct pollfd wait = {client->socket, POLLIN, 0};
        int ready = poll(&wait, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        if (ready == 0) return fail(client, WEIR_TIMEOUT, "nothing from the daemon in time");
        if (ready < 0) {
            if (errno == EINTR) continue;
            return fail(client, WEIR_SYSTEM, "poll: %s", strerror(errno));
        }
        ssize_t count = receive(client);
        if (count == 0 || (count < 0 && errno == ECONNRESET))
            return broken(client, WEIR_CLOSED, "the connection was closed by the daemon");
        if (count > 0) client->end += (size_t)count;
        else if (errno != EINTR) return broken(client, WEIR_SYSTEM, strerror(errno));
    }
}

weir_status last_word(weir_client *client, reader body) {
    char text[1025];
    unsigned code = (unsigned)take(&body, 2);
    take_string(&body, text, sizeof text);
    shutdown(client->socket, SHUT_RDWR);
    client->ended = true;
    return fail(client, WEIR_CLOSED, "closed by the daemon, error %u: %s", code, text);
}

static weir_status keep(weir_client *client, header head, reader body) {
    if (client->kept_count >= KEPT_LIMIT)
        return broken(client, WEIR_PROTOCOL, "more answers and events than can be kept: receive them");
    kept *frame = malloc(sizeof *frame + head.length);
    if (frame == NULL) return fail(client, WEIR_SYSTEM, "memory is short");
    frame->next = NULL;
    frame->head = head;
    if (head.length > 0) memcpy(frame->body, body.at, head.length);
    *client->last = frame;
    client->last = &frame->next;
    client->kept_count++;
    return WEIR_OK;
}

static weir_status abandon(weir_client *client, weir_status status) {
    if (client->abandoned_count >= KEPT_LIMIT)
        return broken(client, WEIR_CLOSED, "the daemon leaves too many frames without an answer");
    client->abandoned[client->abandoned_count++] = client->last_id;
    return status;
}

bool drop(weir_client *client, header head, reader body) {
    size_t at = 0;
    while (at < client->abandoned_count && client->abandoned[at] != head.id) at++;
    if (at == client->abandoned_count || head.kind == FAILED) return false;
    if (head.kind != REGISTERED) {
        client->abandoned[at] = client->abandoned[--client->abandoned_count];
        return true;
    }
    /* The id of REGISTER is free again and stays abandoned, for the answer to this. */
    begin_with(client, UNREGISTER, head.id);
    put(&client->out, take(&body, 4), 4);
    /* If it cannot be sent, reading tells. */
    finish(client, -1);
    return true;
}

weir_status reply(weir_client *client, int64_t until, header *head, reader *body) {
    uint64_t id = client->last_id;
    for (;;) {
        weir_status status = next_frame(client, head, body, until);
        if (status != WEIR_OK) return status;
        if (head->kind == FAILED) return last_word(client, *body);
        if (head->id == id) return WEIR_OK;
        if (drop(client, *head, *body)) continue;
        status = keep(client, *head, *body);
        if (status != WEIR_OK) return status;
    }
}

weir_status ask(weir_client *client, uint16_t kind, int descriptor, reader *body) {
    header head;
    weir_status sent = finish(client, descriptor);
    if (sent != WEIR_OK && sent != WEIR_CLOSED) return sent;
    weir_status status = reply(client, now_ms() + client->timeout, &head, body);
    if (status != WEIR_OK) return abandon(client, status);
    if (head.kind == kind) return WEIR_OK;
    if (head.kind != REFUSED) return broken(client, WEIR_PROTOCOL, "the daemon gave the answer to something else");
    char text[1025];
    client->refusal = (uint16_t)take(body, 2);
    take_string(body, text, sizeof text);
    if (!all_read(body)) return broken(client, WEIR_PROTOCOL, "the daemon's REFUSED cannot be read");
    return fail(client, WEIR_REFUSED, "refused, %s: %s", weir_refusal(client->refusal), text);
}

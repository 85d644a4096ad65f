/* Checks the library against daemons that say what they must not, or die: hostile SOCKET, a path where nothing is yet. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames.h"

#define CHECK(holds)                                              \
    do {                                                          \
        if (!(holds)) {                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #holds);   \
            exit(EXIT_FAILURE);                                   \
        }                                                         \
    } while (0)

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int connection;

static void read_all(void *bytes, size_t length) {
    for (size_t there = 0; there < length;) {
        ssize_t count = read(connection, (uint8_t *)bytes + there, length - there);
        if (count <= 0) exit(EXIT_SUCCESS); /* The client has seen enough. */
        there += (size_t)count;
    }
}

/* The id of the client's next frame. */
static uint64_t next(void) {
    uint8_t bytes[HEADER], body[1024];
    read_all(bytes, sizeof bytes);
    const header head = read_header(bytes);
    CHECK(head.length <= sizeof body);
    read_all(body, head.length);
    return head.id;
}

/* Sends a frame, `cut` bytes less than there are of it, with so many copies of a descriptor. */
static void say(uint16_t kind, uint64_t id, const writer *body, size_t cut, int descriptor, size_t copies) {
    writer out = {0};
    put(&out, body->length, 4);
    put(&out, kind, 2);
    put(&out, 0, 2);
    put(&out, id, 8);
    put_bytes(&out, body->bytes, body->length);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec part = {out.bytes, out.length - cut};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (copies > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(copies * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(copies * sizeof(int));
        for (size_t i = 0; i < copies; i++)
            memcpy(CMSG_DATA(head) + i * sizeof descriptor, &descriptor, sizeof descriptor);
    }
    sendmsg(connection, &message, MSG_NOSIGNAL);
    free(out.bytes);
}

static const writer nothing = {0};

static uint16_t version = 1;

static void welcome(void) {
    writer body = {0};
    put(&body, version, 2);
    put(&body, 0, 2);
    put(&body, 4 << 20, 4);
    put(&body, 0, 8);
    put_string(&body, "hostile");
    say(WELCOME, next(), &body, 0, -1, 0);
    free(body.bytes);
}

/* Grants a stream of 16 bytes in and 8 out, whose only tensors have so many elements of 4 bytes. */
static void grant(uint32_t input, uint32_t output) {
    writer body = {0};
    put(&body, 7, 4);
    put(&body, 16, 4);
    put(&body, 50000000, 8);
    put(&body, 8, 4);
    put(&body, 0, 4);
    put(&body, 1, 4);
    put(&body, 0, 4);
    put_string(&body, "variant");
    for (int side = 0; side < 2; side++) {
        put(&body, 1, 1);
        put(&body, WEIR_F32, 2);
        put(&body, 1, 1);
        put(&body, side == 0 ? input : output, 4);
        put_string(&body, "tensor");
    }
    say(REGISTERED, next(), &body, 0, -1, 0);
    free(body.bytes);
}

static void result(size_t output_bytes, size_t cut) {
    const uint8_t bytes[40 + 16] = {7};
    writer body = {0};
    put_bytes(&body, bytes, 40 + output_bytes);
    say(RESULT, next(), &body, cut, -1, 0);
    free(body.bytes);
}

/* In the daemon: what comes after WELCOME. */
static void many_descriptors(void) {
    const int file = open("/dev/null", O_RDONLY);
    for (;;) say(PONG, next(), &nothing, 0, file, 2);
}

static void a_stray_descriptor(void) {
    say(ALARMED, next(), &nothing, 0, eventfd(0, EFD_NONBLOCK), 1);
    say(PONG, next(), &nothing, 0, open("/dev/null", O_RDONLY), 1);
}

static void a_body_where_none_belongs(void) {
    writer body = {0};
    put(&body, 1, 1);
    say(PONG, next(), &body, 0, -1, 0);
    next();
}

static void tensors_beyond_a_payload(void) { grant(5, 2); next(); }
static void tensors_beyond_an_output(void) { grant(4, 3); next(); }
static void a_short_output(void) { grant(4, 2); result(4, 0); next(); }
static void deaf(void) {
    struct pollfd left = {connection, 0, 0};
    grant(4, 2);
    poll(&left, 1, -1);
}

static void silent(void) {}
static void half_a_frame(void) { grant(4, 2); result(8, 1); }

static weir_client *against(void (*daemon)(void)) {
    weir_client *client;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(address.sun_path);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        connection = accept(listener, NULL, NULL);
        alarm(60);
        welcome();
        daemon();
        exit(EXIT_SUCCESS);
    }
    CHECK(weir_open(&client, address.sun_path, "hostile") == (version <= 5 ? WEIR_OK : WEIR_PROTOCOL));
    close(listener);
    return client;
}

static void end(weir_client *client) {
    int status;
    weir_close(client);
    CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
}

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

static weir_status registered(weir_client *client, weir_stream *stream) {
    return weir_register(client, "s", "t", NULL, 0, NULL, 0, stream);
}

int main(int argc, char **argv) {
    static weir_stream stream;
    const uint8_t payload[16] = {0};
    weir_answer answer;
    int file = -1;
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return EXIT_FAILURE;
    memcpy(address.sun_path, argv[1], strlen(argv[1]));
    const int before = open_files();

    weir_client *client = against(many_descriptors);
    for (int i = 0; i < 5; i++) CHECK(weir_ping(client) == WEIR_OK);
    end(client);
    CHECK(open_files() == before);

    client = against(a_stray_descriptor);
    CHECK(weir_alarm(client, &file) == WEIR_OK && weir_ping(client) == WEIR_OK);
    CHECK(write(file, &(uint64_t){1}, sizeof(uint64_t)) == sizeof(uint64_t));
    end(client);
    CHECK(open_files() == before);

    client = against(a_body_where_none_belongs);
    CHECK(weir_ping(client) == WEIR_PROTOCOL && weir_ping(client) == WEIR_CLOSED);
    end(client);

    client = against(tensors_beyond_a_payload);
    CHECK(registered(client, &stream) == WEIR_PROTOCOL);
    end(client);
    client = against(tensors_beyond_an_output);
    CHECK(registered(client, &stream) == WEIR_PROTOCOL);
    end(client);

    client = against(a_short_output);
    CHECK(registered(client, &stream) == WEIR_OK && weir_infer(client, &stream, payload, &answer) == WEIR_PROTOCOL);
    end(client);
    client = against(half_a_frame);
    CHECK(registered(client, &stream) == WEIR_OK && weir_infer(client, &stream, payload, &answer) == WEIR_CLOSED);
    end(client);

    for (version = 1; version <= 6; version++) {
        client = against(silent);
        if (version == 6) CHECK(strstr(weir_error(client), "is not of version 1 to 5") != NULL);
        end(client);
    }
    version = 1;

    client = against(deaf);
    CHECK(registered(client, &stream) == WEIR_OK);
    weir_set_timeout(client, 0); /* None is no leave to wait for ever. */
    alarm(60);
    weir_status status;
    do status = weir_submit(client, &stream, payload, NULL);
    while (status == WEIR_OK);
    CHECK(status == WEIR_CLOSED && strstr(weir_error(client), "took nothing in time") != NULL);
    end(client);
    unlink(address.sun_path);
    puts("all checks passed");
    return EXIT_SUCCESS;
}

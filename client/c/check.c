/* Checks the library against a running daemon: check SOCKET, with the services of tests/e2e/protocol/clients.rs. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir.h"

static weir_client *client;
static weir_stream typed, slow;

#define CHECK(holds)                                                                                   \
    do {                                                                                               \
        if (!(holds)) {                                                                                \
            fprintf(stderr, "line %d: %s\n  %s\n", __LINE__, #holds, client ? weir_error(client) : ""); \
            exit(EXIT_FAILURE);                                                                        \
        }                                                                                              \
    } while (0)

static weir_status best_effort(const char *service, const char *name, weir_stream *stream) {
    return weir_register(client, service, name, NULL, 0, NULL, 0, stream);
}

/* One request of every type of tensor; the answer repeats it and doubles the score. */
static void fill(uint8_t *payload, int64_t number) {
    const int64_t ids[] = {-number, number};
    const float score = 1.25F;
    for (size_t i = 0; i < 6; i++) payload[typed.input[0].offset + i] = (uint8_t)((size_t)number + i);
    memcpy(payload + typed.input[1].offset, ids, sizeof ids);
    memcpy(payload + typed.input[3].offset, &score, sizeof score);
}

static void compare(const uint8_t *output, int64_t number) {
    int64_t ids[2];
    float score;
    memcpy(ids, output + typed.output[1].offset, sizeof ids);
    memcpy(&score, output + typed.output[3].offset, sizeof score);
    CHECK(ids[0] == -number && ids[1] == number && score >= 2.5F && score <= 2.5F);
    CHECK(output[typed.output[0].offset + 5] == (uint8_t)(number + 5));
}

static void errors_say_why(const char *socket) {
    char path[200];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = 0;
    CHECK(weir_open(&client, "/nonexistent/weir.sock", "check") == WEIR_SYSTEM);
    CHECK(strstr(weir_error(client), "/nonexistent/weir.sock: No such file") != NULL);
    weir_close(client);
    CHECK(weir_open(&client, path, "check") == WEIR_INVALID);
    weir_close(client);
    CHECK(weir_open(&client, socket, "check") == WEIR_OK);
    CHECK(weir_ping(client) == WEIR_OK);
    CHECK(best_effort("no such service", "c", &typed) == WEIR_REFUSED);
    CHECK(weir_refusal_code(client) == 1 && strstr(weir_error(client), "refused, unknown-service: no service") != NULL);
    path[190] = 0;
    CHECK(best_effort("typed", path, &typed) == WEIR_REFUSED && weir_refusal_code(client) == 2);
    const weir_constraint senseless = weir_any_miss(3, 2);
    const weir_arrivals window = weir_window(1, 1000000000);
    CHECK(weir_register(client, "slow", "c", &senseless, 1, &window, 1, &slow) == WEIR_REFUSED);
    CHECK(weir_register(client, "slow", "c", &senseless, 9, &window, 1, &slow) == WEIR_INVALID);
}

static void tensors_are_told(void) {
    CHECK(best_effort("typed", "c-typed", &typed) == WEIR_OK);
    CHECK(best_effort("typed", "c-typed", &slow) == WEIR_REFUSED && weir_refusal_code(client) == 6);
    CHECK(typed.inputs == 4 && typed.outputs == 4 && typed.input_bytes == 36 && typed.output_bytes == 36);
    CHECK(strcmp(typed.input[0].name, "image") == 0 && typed.input[0].type == WEIR_U8);
    CHECK(typed.input[0].dimensions == 2 && typed.input[0].shape[0] == 2 && typed.input[0].shape[1] == 3);
    const uint32_t layouts[][3] = {{2, 3, 1}, {1, 2, 3}, {3, 2, 1}, {6, 1, 1}};
    CHECK(weir_has_shape(&typed.input[0], layouts[0], 2) && weir_has_shape(&typed.input[0], layouts[1], 3));
    CHECK(!weir_has_shape(&typed.input[0], layouts[2], 2) && !weir_has_shape(&typed.input[0], layouts[3], 3));
    CHECK(!weir_has_shape(&typed.input[0], layouts[0], 1) && weir_has_shape(&typed.input[0], layouts[0], 3));
    CHECK(typed.input[1].type == WEIR_I64 && typed.input[1].offset == 8 && typed.input[1].bytes == 16);
    CHECK(typed.input[2].type == WEIR_F16 && typed.input[2].offset == 24 && typed.input[2].bytes == 6);
    CHECK(typed.output[3].type == WEIR_F32 && typed.output[3].offset == 32);
    CHECK(strcmp(typed.output[3].name, "score_out") == 0 && strcmp(typed.variant, "typed") == 0);
}

static void other_types_go_and_come(void) {
    uint8_t payload[35] = {0};
    weir_stream numbers;
    weir_answer answer;
    const int32_t count[] = {INT32_MIN, INT32_MAX};
    const double value = 0.1;
    CHECK(best_effort("numbers", "c-numbers", &numbers) == WEIR_OK && numbers.input_bytes == sizeof payload);
    CHECK(numbers.input[0].type == WEIR_F64 && numbers.input[0].bytes == 16);
    CHECK(numbers.input[1].type == WEIR_I8 && numbers.input[1].offset == 16 && numbers.input[1].bytes == 3);
    CHECK(numbers.input[2].type == WEIR_I32 && numbers.input[2].offset == 24 && numbers.input[2].bytes == 8);
    CHECK(numbers.input[3].type == WEIR_BOOL && numbers.input[3].offset == 32 && numbers.input[3].bytes == 3);
    memcpy(payload, &value, sizeof value);
    memcpy(payload + 24, count, sizeof count);
    payload[33] = 1;
    CHECK(weir_infer(client, &numbers, payload, &answer) == WEIR_OK && answer.kind == WEIR_RESULT);
    CHECK(answer.output_bytes == sizeof payload && memcmp(answer.output, payload, sizeof payload) == 0);
}

/* A batch takes 40 ms, the deadline of the soft class is 10 ms. */
static void requests_are_of_classes(void) {
    weir_stream classed;
    weir_answer answer;
    const float zeros[2] = {0};
    CHECK(best_effort("classed", "c-classed", &classed) == WEIR_OK && classed.classes == 2 && classed.own_class == 0);
    CHECK(strcmp(classed.of_class[1].name, "soft") == 0 && classed.of_class[1].deadline_ns == 10000000);
    CHECK(classed.of_class[0].reach_ns == 20000000000 && classed.of_class[1].reach_ns == 1010000000);
    CHECK(weir_infer(client, &classed, zeros, &answer) == WEIR_OK && answer.kind == WEIR_RESULT && !answer.late);
    CHECK(weir_set_class(client, &classed, "torn") == WEIR_INVALID && strstr(weir_error(client), "no class torn") != NULL);
    CHECK(weir_set_class(client, &classed, "soft") == WEIR_OK);
    CHECK(weir_infer(client, &classed, zeros, &answer) == WEIR_OK && answer.kind == WEIR_RESULT && answer.late);
    CHECK(answer.output_bytes == sizeof zeros && weir_set_class(client, &classed, NULL) == WEIR_OK);
    CHECK(weir_infer(client, &classed, zeros, &answer) == WEIR_OK && answer.kind == WEIR_RESULT && !answer.late);
    /* What a reload has taken away is refused by the daemon. */
    classed.asked_class = 9;
    CHECK(weir_infer(client, &classed, zeros, &answer) == WEIR_REFUSED);
    CHECK(strcmp(weir_refusal(weir_refusal_code(client)), "unknown-class") == 0);
}

static void requests_are_answered_inline(void) {
    uint8_t payload[36] = {0};
    weir_answer answer;
    fill(payload, 7);
    CHECK(weir_infer(client, &typed, payload, &answer) == WEIR_OK && answer.kind == WEIR_RESULT);
    CHECK(answer.output_bytes == 36 && answer.sequence == 0 && answer.misses_left == WEIR_NO_CONSTRAINT);
    compare(answer.output, 7);
}

static void requests_are_answered_in_the_arena(void) {
    weir_place places[4];
    weir_answer answer;
    uint64_t ids[4];
    CHECK(weir_max_arena(client) == 1 << 20);
    CHECK(weir_place_for(client, &typed, &places[0]) == WEIR_INVALID);
    CHECK(weir_share(client, 0) == WEIR_INVALID && strstr(weir_error(client), "at least 1") != NULL);
    CHECK(weir_share(client, (1 << 20) + 1) == WEIR_REFUSED && weir_refusal_code(client) == 11);
    CHECK(weir_share(client, 4 * 128) == WEIR_OK);
    CHECK(weir_share(client, 4096) == WEIR_INVALID);
    for (int i = 0; i < 4; i++) {
        CHECK(weir_place_for(client, &typed, &places[i]) == WEIR_OK);
        fill(places[i].input, 100 + i);
        CHECK(weir_submit_shared(client, &typed, &places[i], &ids[i]) == WEIR_OK);
    }
    weir_place none;
    CHECK(weir_place_for(client, &typed, &none) == WEIR_INVALID);
    for (int i = 0; i < 4; i++) {
        CHECK(weir_receive(client, &answer, 5000) == WEIR_OK && answer.kind == WEIR_RESULT);
        CHECK(answer.output_bytes == 0);
        for (int n = 0; n < 4; n++)
            if (ids[n] == answer.id) compare(places[n].output, 100 + n);
    }
    places[0].input_at = 1 << 20;
    CHECK(weir_submit_shared(client, &typed, &places[0], NULL) == WEIR_OK);
    CHECK(weir_receive(client, &answer, 5000) == WEIR_OK && answer.kind == WEIR_NOT_TAKEN && answer.code == 12);
    CHECK(weir_infer_shared(client, &typed, &places[0], &answer) == WEIR_REFUSED);
}

static void nothing_is_lost_while_something_else_is_waited_for(void) {
    enum { COUNT = 100 };
    uint8_t payload[36] = {0};
    weir_answer answer;
    uint64_t first = 0, sum = 0, wanted = 0;
    for (int i = 0; i < COUNT; i++) {
        uint64_t id;
        fill(payload, i);
        CHECK(weir_submit(client, &typed, payload, &id) == WEIR_OK);
        if (first == 0) first = id;
        wanted += id;
        if (i % 10 == 0) CHECK(weir_ping(client) == WEIR_OK);
    }
    for (int i = 0; i < COUNT;) {
        weir_status status = weir_receive(client, &answer, 0);
        if (status == WEIR_TIMEOUT) {
            struct pollfd wait = {weir_fd(client), POLLIN, 0};
            CHECK(poll(&wait, 1, 10000) == 1);
            continue;
        }
        CHECK(status == WEIR_OK && answer.kind == WEIR_RESULT && answer.id >= first);
        sum += answer.id;
        i++;
    }
    CHECK(sum == wanted);
    CHECK(weir_receive(client, &answer, 10) == WEIR_TIMEOUT);
}

static pid_t the_daemon(void) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    CHECK(getsockopt(weir_fd(client), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0);
    return peer.pid;
}

/* A daemon that is stopped answers late, and all at once. */
static void late_answers_are_dropped(void) {
    const pid_t daemon = the_daemon();
    uint8_t payload[36] = {0};
    weir_answer answer;
    weir_stream late;
    weir_status status;
    for (int round = 0; round < 2; round++) {
        uint64_t id;
        CHECK(kill(daemon, SIGSTOP) == 0);
        weir_set_timeout(client, 50);
        do status = weir_ping(client);
        while (status == WEIR_OK);
        CHECK(status == WEIR_TIMEOUT);
        CHECK(best_effort("typed", "c-late", &late) == WEIR_TIMEOUT);
        CHECK(best_effort("no such service", "c", &late) == WEIR_TIMEOUT);
        fill(payload, round);
        CHECK(weir_submit(client, &typed, payload, &id) == WEIR_OK);
        CHECK(kill(daemon, SIGCONT) == 0);
        weir_set_timeout(client, 60000);
        if (round == 0) CHECK(weir_ping(client) == WEIR_OK);
        CHECK(weir_receive(client, &answer, 60000) == WEIR_OK && answer.kind == WEIR_RESULT && answer.id == id);
        compare(answer.output, round);
        /* Whatever was granted late is given up, and then the name is free. */
        for (int tries = 0; (status = best_effort("typed", "c-late", &late)) == WEIR_REFUSED && tries < 6000; tries++)
            poll(NULL, 0, 10);
        CHECK(status == WEIR_OK && weir_unregister(client, &late) == WEIR_OK);
        CHECK(weir_receive(client, &answer, 10) == WEIR_TIMEOUT);
    }
    weir_set_timeout(client, 5000);
}

/* So many changes since the last time. */
static int changes(int alarm, int milliseconds) {
    struct pollfd rings = {alarm, POLLIN, 0};
    uint64_t count = 0;
    if (poll(&rings, 1, milliseconds) == 1) CHECK(read(alarm, &count, sizeof count) == sizeof count && count > 0);
    return (int)count;
}

static void misses_and_the_suspension_are_told(void) {
    const weir_constraint constraints[] = {weir_any_miss(1, 2), weir_row_miss(1)};
    const weir_arrivals arrivals[] = {weir_periodic(1000000000, 1000000)};
    const float zeros[2] = {0};
    int events = 0, misses = 0, results = 0, told = 0, rung = 0, alarm = -1;
    CHECK(weir_register(client, "slow", "c-slow", constraints, 2, arrivals, 1, &slow) == WEIR_OK);
    CHECK(slow.guaranteed == 1 && slow.of == 2 && slow.deadline_ns == 2000000000);
    CHECK(weir_alarm(client, &alarm) == WEIR_REFUSED && weir_refusal_code(client) == 14 && alarm == -1);
    CHECK(strcmp(weir_refusal(14), "alarm") == 0);
    CHECK(weir_subscribe(client, WEIR_EVENTS_MISSES_LEFT | WEIR_EVENTS_SUSPENSION) == WEIR_OK);
    CHECK(weir_alarm(client, &alarm) == WEIR_OK && changes(alarm, 0) == 0);
    CHECK(weir_alarm(client, &alarm) == WEIR_REFUSED && strstr(weir_error(client), "already") != NULL);
    for (int i = 0; i < 8; i++) CHECK(weir_submit(client, &slow, zeros, NULL) == WEIR_OK);
    /* What still waits is cancelled. */
    CHECK(weir_unregister(client, &slow) == WEIR_OK);
    while (events == 0 || misses + results < 8) {
        weir_answer answer;
        CHECK(weir_receive(client, &answer, 10000) == WEIR_OK);
        told += answer.kind == WEIR_SUSPENSION;
        misses += answer.kind == WEIR_MISS;
        results += answer.kind == WEIR_RESULT;
        if (answer.kind == WEIR_MISS) CHECK(strcmp(weir_miss(answer.code), "cancelled") == 0);
        if (answer.kind != WEIR_SUSPENSION || answer.code == WEIR_STREAM_NORMAL) continue;
        CHECK(strcmp(answer.service, "slow") == 0 && strcmp(answer.stream_name, "c-slow") == 0);
        CHECK(strcmp(weir_cause(answer.cause), "arrival-excess") == 0 && answer.seen > answer.limit);
        CHECK(strstr(answer.text, "c-slow") != NULL && answer.sequence > 0);
        events++;
    }
    CHECK(misses > 0);
    while (rung < told) {
        int count = changes(alarm, 10000);
        CHECK(count > 0);
        rung += count;
    }
    /* Each that was counted is told. */
    weir_answer answer;
    while (told < rung) {
        CHECK(weir_receive(client, &answer, 10000) == WEIR_OK);
        told += answer.kind == WEIR_SUSPENSION;
    }
    CHECK(weir_infer(client, &slow, zeros, &answer) == WEIR_REFUSED && weir_refusal_code(client) == 7);
}

int main(int argc, char **argv) {
    if (argc != 2) return EXIT_FAILURE;
    errors_say_why(argv[1]);
    tensors_are_told();
    other_types_go_and_come();
    requests_are_of_classes();
    requests_are_answered_inline();
    requests_are_answered_in_the_arena();
    nothing_is_lost_while_something_else_is_waited_for();
    late_answers_are_dropped();
    misses_and_the_suspension_are_told();
    weir_close(client);
    puts("all checks passed");
    return EXIT_SUCCESS;
}

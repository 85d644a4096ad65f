/* Checks a client that connects again: restarts SOCKET, with the daemon of tests/e2e/protocol/steady.rs, which is stopped and
 * started by whoever reads what this says; a line comes back once that is done. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir.h"

static weir_client *client;
static const float values[2] = {1, 2};

#define CHECK(holds)                                                                          \
    do {                                                                                      \
        if (!(holds)) {                                                                       \
            fprintf(stderr, "line %d: %s\n  %s\n", __LINE__, #holds, weir_error(client));     \
            exit(EXIT_FAILURE);                                                               \
        }                                                                                     \
    } while (0)

static void say(const char *word) {
    char line[16];
    puts(word);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static void promised(const char *name, uint64_t requests, weir_stream *stream) {
    const weir_constraint constraint = weir_any_miss(1, 3);
    const weir_arrivals arrivals = weir_window(requests, 1000000000);
    CHECK(weir_register(client, "echo", name, &constraint, 1, &arrivals, 1, stream) == WEIR_OK);
}

static weir_status infer(const weir_stream *stream) {
    weir_answer answer;
    weir_status status = weir_infer(client, stream, values, &answer);
    if (status == WEIR_OK) CHECK(answer.kind == WEIR_RESULT || answer.kind == WEIR_MISS);
    return status;
}

int main(int argc, char **argv) {
    weir_stream gone, first, second, third, tight, copy;
    weir_place place;
    weir_answer answer;
    int fd;
    if (argc != 2) return EXIT_FAILURE;
    /* Nobody is there yet. */
    CHECK(weir_open(&client, argv[1], "restarts") == WEIR_SYSTEM && weir_ping(client) == WEIR_SYSTEM);
    weir_set_reconnect(client, true);
    CHECK(weir_ping(client) == WEIR_SYSTEM && strstr(weir_error(client), "is the daemon running") != NULL);
    say("open");
    CHECK(weir_ping(client) == WEIR_OK);
    promised("gone", 50, &gone);
    promised("first", 50, &first);
    promised("second", 50, &second);
    CHECK(weir_unregister(client, &gone) == WEIR_OK);
    CHECK(weir_subscribe(client, WEIR_EVENTS_SUSPENSION) == WEIR_OK && weir_alarm(client, &fd) == WEIR_OK);
    CHECK(weir_share(client, 4096) == WEIR_OK && weir_place_for(client, &second, &place) == WEIR_OK);
    CHECK(infer(&second) == WEIR_OK && first.id == 2 && second.id == 3);
    second.within_ns = 4000000000;
    fd = weir_fd(client);

    say("stop");
    CHECK(infer(&second) == WEIR_CLOSED);
    CHECK(infer(&second) == WEIR_SYSTEM && strstr(weir_error(client), "is the daemon running") != NULL);
    CHECK(weir_receive(client, &answer, 0) == WEIR_SYSTEM);
    say("start");
    CHECK(infer(&second) == WEIR_OK && weir_fd(client) == fd);
    /* The new connection counts anew. */
    CHECK(first.id == 1 && second.id == 2 && second.within_ns == 4000000000);
    copy = second;
    CHECK(infer(&copy) == WEIR_INVALID && infer(&gone) == WEIR_INVALID && weir_unregister(client, &gone) == WEIR_INVALID);
    /* It has subscribed again as well: a flood is told. */
    promised("tight", 1, &tight);
    for (int i = 0; i < 2; i++) CHECK(weir_submit(client, &tight, values, NULL) == WEIR_OK);
    do CHECK(weir_receive(client, &answer, 30000) == WEIR_OK);
    while (answer.kind != WEIR_SUSPENSION);
    CHECK(strcmp(answer.stream_name, "tight") == 0 && weir_unregister(client, &tight) == WEIR_OK);
    /* The arena of the first connection is only memory by now; another one, and another alarm, can be had. */
    place.input[0] = 1;
    CHECK(weir_place_for(client, &second, &place) == WEIR_INVALID);
    CHECK(weir_infer_shared(client, &second, &place, &answer) == WEIR_INVALID && strstr(weir_error(client), "was lost") != NULL);
    CHECK(weir_share(client, 4096) == WEIR_OK);
    CHECK(weir_submit_shared(client, &second, &place, NULL) == WEIR_INVALID && weir_place_for(client, &second, &place) == WEIR_OK);
    CHECK(weir_infer_shared(client, &second, &place, &answer) == WEIR_OK && weir_alarm(client, &fd) == WEIR_OK);

    promised("third", 50, &third);
    say("take the name");
    CHECK(infer(&second) == WEIR_CLOSED);
    /* Nobody can be told, nor need be. */
    CHECK(weir_unregister(client, &third) == WEIR_OK && infer(&third) == WEIR_INVALID);
    /* The others go on; each call for this one asks once more. */
    for (int i = 0; i < 2; i++) CHECK(infer(&second) == WEIR_REFUSED && weir_refusal_code(client) == 6);
    CHECK(infer(&first) == WEIR_OK && weir_ping(client) == WEIR_OK);
    say("give it back");
    CHECK(infer(&second) == WEIR_OK);
    say("take the name again");
    CHECK(infer(&first) == WEIR_CLOSED);
    say("give it back in a while");
    /* Whoever had the name, this client's own connection before or another client, may have it for some time yet. */
    CHECK(infer(&first) == WEIR_OK);
    CHECK(infer(&second) == WEIR_OK);

    say("take the name for good");
    CHECK(infer(&first) == WEIR_CLOSED && infer(&first) == WEIR_OK && infer(&second) == WEIR_REFUSED);
    CHECK(weir_unregister(client, &second) == WEIR_OK && infer(&second) == WEIR_INVALID);

    say("other tensors");
    CHECK(infer(&first) == WEIR_CLOSED);
    /* What is granted so is given up again. */
    for (int i = 0; i < 2; i++) CHECK(infer(&first) == WEIR_INVALID && strstr(weir_error(client), "other tensors") != NULL);
    CHECK(first.input_bytes == sizeof values && weir_ping(client) == WEIR_OK);
    weir_close(client);
    puts("all checks passed");
    return EXIT_SUCCESS;
}

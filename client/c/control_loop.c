/* A control loop that asks every 20 ms, survives the misses it agreed to, and slows down while nothing is promised.
 *
 *     control_loop SERVICE [SOCKET]
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weir.h"

static const uint64_t PERIOD = 20000000;
static const char *const NAME = "control-loop";

static int give_up(weir_client *client) {
    fprintf(stderr, "control_loop: %s\n", weir_error(client));
    weir_close(client);
    return EXIT_FAILURE;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Sleeps until then; whether the alarm rang before. */
static bool rings_before(uint64_t then, int alarm) {
    uint64_t at = now(), left = then > at ? then - at : 0, changes;
    const struct timespec wait = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
    struct pollfd rings = {alarm, POLLIN, 0};
    return ppoll(&rings, 1, &wait, NULL) > 0 && read(alarm, &changes, sizeof changes) == sizeof changes;
}

/* What stands against the promise: the safe mode of the service, the suspension of this stream. */
typedef struct { bool safe_mode, suspended; } standing;

static standing look_at_events(weir_client *client, const char *service, standing stands) {
    weir_answer event;
    /* The event that says why may come an instant after the alarm; or before, and then nothing comes. */
    for (int wait = 2; weir_receive(client, &event, wait) == WEIR_OK; wait = 0) {
        if (strcmp(event.service, service) != 0) continue;
        if (event.kind == WEIR_SAFE_MODE)
            stands.safe_mode = event.code >= WEIR_SUSPENDED;
        else if (event.kind == WEIR_SUSPENSION && strcmp(event.stream_name, NAME) == 0)
            stands.suspended = event.code != WEIR_STREAM_NORMAL;
        else
            continue;
        printf("%s: %s\n", stands.safe_mode || stands.suspended ? "slow" : "as promised", event.text);
    }
    return stands;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: control_loop SERVICE [SOCKET]\n");
        return EXIT_FAILURE;
    }
    const weir_constraint constraints[] = {weir_any_miss(3, 10), weir_row_miss(1)};
    const weir_arrivals arrivals[] = {weir_periodic(PERIOD, 5000000)};
    weir_client *client;
    static weir_stream stream;
    weir_place place;
    int alarm;
    if (weir_open(&client, argc > 2 ? argv[2] : WEIR_SOCKET, NAME) != WEIR_OK ||
        weir_register(client, argv[1], NAME, constraints, 2, arrivals, 1, &stream) != WEIR_OK ||
        weir_subscribe(client, WEIR_EVENTS_SAFE_MODE | WEIR_EVENTS_SUSPENSION) != WEIR_OK ||
        weir_alarm(client, &alarm) != WEIR_OK ||
        weir_share(client, (size_t)stream.input_bytes + stream.output_bytes + 128) != WEIR_OK ||
        weir_place_for(client, &stream, &place) != WEIR_OK)
        return give_up(client);
    printf("%s: %u of %u guaranteed within %.1f ms\n", stream.variant, (unsigned)stream.guaranteed,
           (unsigned)stream.of, (double)stream.deadline_ns / 1e6);

    standing stands = {false, false};
    for (uint64_t next = now();;) {
        weir_answer answer;
        memset(place.input, 0, stream.input_bytes); /* Here the sensors are read. */
        if (weir_infer_shared(client, &stream, &place, &answer) != WEIR_OK) return give_up(client);
        if (answer.kind == WEIR_RESULT)
            printf("output of %u bytes in %.3f ms\n", (unsigned)stream.output_bytes,
                   (double)(answer.queued_ns + answer.run_ns) / 1e6);
        else
            printf("held the last output: %s\n", weir_miss(answer.code));
        fflush(stdout);
        /* While the promise does not hold, the machine moves at a speed that needs none. */
        next += stands.safe_mode || stands.suspended ? 10 * PERIOD : PERIOD;
        /* What was late is not caught up with: that would be more requests than were declared. */
        if (next < now()) next = now();
        while (rings_before(next, alarm)) stands = look_at_events(client, argv[1], stands);
    }
}

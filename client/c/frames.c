#include "frames.h"

#include <stdlib.h>
#include <string.h>

static bool reserve(writer *out, size_t more) {
    if (out->failed || out->capacity - out->length >= more) return !out->failed;
    size_t capacity = out->capacity + more + 256;
    uint8_t *bytes = realloc(out->bytes, capacity);
    out->failed = bytes == NULL;
    if (bytes != NULL) {
        out->bytes = bytes;
        out->capacity = capacity;
    }
    return !out->failed;
}

void put(writer *out, uint64_t value, int bytes) {
    if (!reserve(out, (size_t)bytes)) return;
    for (int i = 0; i < bytes; i++) out->bytes[out->length++] = (uint8_t)(value >> 8 * i);
}

void put_bytes(writer *out, const void *bytes, size_t length) {
    if (length == 0 || !reserve(out, length)) return;
    memcpy(out->bytes + out->length, bytes, length);
    out->length += length;
}

void put_string(writer *out, const char *text) {
    size_t length = strlen(text);
    if (length > 255) out->failed = true;
    put(out, length, 2);
    put_bytes(out, text, length);
}

uint64_t take(reader *in, int bytes) {
    uint64_t value = 0;
    if (in->end - in->at < bytes) {
        in->failed = true;
        in->at = in->end;
        return 0;
    }
    for (int i = 0; i < bytes; i++) value |= (uint64_t)in->at[i] << 8 * i;
    in->at += bytes;
    return value;
}

void take_string(reader *in, char *text, size_t room) {
    size_t length = take(in, 2);
    text[0] = 0;
    if (length >= room || (size_t)(in->end - in->at) < length) {
        in->failed = true;
        return;
    }
    memcpy(text, in->at, length);
    text[length] = 0;
    in->at += length;
}

void take_reserved(reader *in, int bytes) {
    if (take(in, bytes) != 0) in->failed = true;
}

bool all_read(const reader *in) { return !in->failed && in->at == in->end; }

header read_header(const uint8_t *bytes) {
    reader in = {bytes, bytes + HEADER, false};
    header head;
    head.length = (uint32_t)take(&in, 4);
    head.kind = (uint16_t)take(&in, 2);
    head.flags = (uint16_t)take(&in, 2);
    head.id = take(&in, 8);
    return head;
}

static size_t element_size(uint16_t type) {
    switch (type) {
        case WEIR_F64:
        case WEIR_I64: return 8;
        case WEIR_F32:
        case WEIR_I32: return 4;
        case WEIR_F16: return 2;
        case WEIR_I8:
        case WEIR_U8:
        case WEIR_BOOL: return 1;
        default: return 0;
    }
}

/* They must not reach beyond the bytes of their side: callers write and read at their offsets. */
static bool read_tensors(reader *in, uint8_t *count, weir_tensor *tensors, uint32_t bytes) {
    size_t end = 0;
    *count = (uint8_t)take(in, 1);
    if (*count > WEIR_MAX_TENSORS) return false;
    for (uint8_t i = 0; i < *count; i++) {
        weir_tensor *tensor = &tensors[i];
        tensor->type = (uint16_t)take(in, 2);
        tensor->dimensions = (uint8_t)take(in, 1);
        if (tensor->dimensions > WEIR_MAX_DIMENSIONS) return false;
        tensor->bytes = element_size(tensor->type);
        for (uint8_t d = 0; d < tensor->dimensions; d++) {
            tensor->shape[d] = (uint32_t)take(in, 4);
            /* No payload is longer than its length in 32 bits can tell. */
            if (tensor->shape[d] != 0 && tensor->bytes > UINT32_MAX / tensor->shape[d]) return false;
            tensor->bytes *= tensor->shape[d];
        }
        take_string(in, tensor->name, sizeof tensor->name);
        tensor->offset = (end + 7) / 8 * 8;
        end = tensor->offset + tensor->bytes;
        if (end > bytes) return false;
    }
    return !in->failed;
}

/* What is behind the tensors, if anything is. */
static bool read_classes(reader *in, weir_stream *stream) {
    if (in->at == in->end) return true;
    stream->own_class = (uint8_t)take(in, 1);
    stream->classes = (uint8_t)take(in, 1);
    if (stream->classes > WEIR_MAX_CLASSES || stream->own_class >= stream->classes) return false;
    for (uint8_t i = 0; i < stream->classes; i++) {
        stream->of_class[i].deadline_ns = take(in, 8);
        stream->of_class[i].reach_ns = take(in, 8);
        take_string(in, stream->of_class[i].name, sizeof stream->of_class[i].name);
    }
    return true;
}

bool read_stream(reader *in, weir_stream *stream) {
    memset(stream, 0, sizeof *stream);
    stream->id = (uint32_t)take(in, 4);
    stream->input_bytes = (uint32_t)take(in, 4);
    stream->deadline_ns = take(in, 8);
    stream->output_bytes = (uint32_t)take(in, 4);
    stream->guaranteed = (uint32_t)take(in, 4);
    stream->of = (uint32_t)take(in, 4);
    uint32_t accuracy = (uint32_t)take(in, 4);
    memcpy(&stream->accuracy, &accuracy, sizeof accuracy);
    take_string(in, stream->variant, sizeof stream->variant);
    return read_tensors(in, &stream->inputs, stream->input, stream->input_bytes) &&
           read_tensors(in, &stream->outputs, stream->output, stream->output_bytes) && read_classes(in, stream) &&
           all_read(in);
}

/* Both kinds of change have the same fields. */
static void read_change(reader *in, weir_kind kind, weir_answer *answer) {
    answer->kind = kind;
    answer->code = (uint16_t)take(in, 2);
    answer->cause = (uint16_t)take(in, 2);
    take_reserved(in, 4);
    answer->sequence = take(in, 8);
    answer->entered_ns = take(in, 8);
    answer->limit = take(in, 8);
    answer->seen = take(in, 8);
    answer->window_ns = take(in, 8);
    answer->breaches = take(in, 8);
    take_string(in, answer->service, sizeof answer->service);
    take_string(in, answer->stream_name, sizeof answer->stream_name);
    take_string(in, answer->text, sizeof answer->text);
}

static void read_request(reader *in, weir_answer *answer) {
    answer->stream = (uint32_t)take(in, 4);
    answer->misses_left = (uint32_t)take(in, 4);
    answer->sequence = take(in, 8);
}

bool read_answer(header head, reader in, weir_answer *answer) {
    memset(answer, 0, sizeof *answer);
    answer->id = head.id;
    switch (head.kind) {
        case RESULT:
        case RESULT_LATE:
            answer->kind = WEIR_RESULT;
            answer->late = head.kind == RESULT_LATE;
            read_request(&in, answer);
            answer->queued_ns = take(&in, 8);
            answer->run_ns = take(&in, 8);
            answer->batch = (uint16_t)take(&in, 2);
            answer->variant = (uint16_t)take(&in, 2);
            answer->skipped = (uint32_t)take(&in, 4);
            answer->output = in.at;
            answer->output_bytes = (size_t)(in.end - in.at);
            in.at = in.end;
            break;
        case MISS:
            answer->kind = WEIR_MISS;
            read_request(&in, answer);
            answer->code = (uint16_t)take(&in, 2);
            break;
        case REFUSED:
            answer->kind = WEIR_NOT_TAKEN;
            answer->code = (uint16_t)take(&in, 2);
            take_string(&in, answer->text, sizeof answer->text);
            break;
        case EVENT_SAFE_MODE: read_change(&in, WEIR_SAFE_MODE, answer); break;
        case EVENT_SUSPENSION: read_change(&in, WEIR_SUSPENSION, answer); break;
        case EVENT_MISSES_LEFT:
            answer->kind = WEIR_MISSES_LEFT;
            answer->misses_left = (uint32_t)take(&in, 4);
            answer->constraint.form = (uint8_t)take(&in, 1);
            answer->constraint.a = (uint32_t)take(&in, 4);
            answer->constraint.k = (uint32_t)take(&in, 4);
            take_string(&in, answer->service, sizeof answer->service);
            take_string(&in, answer->stream_name, sizeof answer->stream_name);
            break;
        case EVENTS_LOST:
            answer->kind = WEIR_EVENTS_LOST;
            answer->count = take(&in, 8);
            break;
        default: return false;
    }
    return all_read(&in);
}

#define WORD(table, code) ((code) < sizeof table / sizeof *table ? table[code] : table[0])

const char *weir_miss(uint16_t code) {
    static const char *const words[] = {"unknown",    "unmeetable", "expired",       "shed",       "queue-full",
                                        "late",       "engine-failed", "worker-lost", "cancelled"};
    return WORD(words, code);
}

const char *weir_refusal(uint16_t code) {
    static const char *const words[] = {
        "unknown",        "unknown-service", "invalid-constraint", "invalid-arrivals", "not-admissible",
        "too-many-streams", "name-in-use",   "unknown-stream",     "draining",         "not-permitted",
        "input-length",   "arena",           "arena-place",        "output-length",    "alarm",
        "too-many-questions", "sent-in-future", "unknown-class"};
    return WORD(words, code);
}

const char *weir_cause(uint16_t code) {
    static const char *const words[] = {"unknown",     "arrival-excess",      "service-overrun", "late-dispatch",
                                        "worker-lost", "constraint-violated", "profile-stale",   "operator",
                                        "misses-low",  "rate-high"};
    return WORD(words, code);
}

weir_constraint weir_any_miss(uint32_t misses, uint32_t window) { return (weir_constraint){1, misses, window}; }
weir_constraint weir_any_hit(uint32_t hits, uint32_t window) { return (weir_constraint){2, hits, window}; }
weir_constraint weir_row_miss(uint32_t misses) { return (weir_constraint){3, misses, 0}; }
weir_constraint weir_row_hit(uint32_t hits, uint32_t window) { return (weir_constraint){4, hits, window}; }
weir_arrivals weir_window(uint64_t count, uint64_t length_ns) { return (weir_arrivals){1, count, length_ns}; }
weir_arrivals weir_periodic(uint64_t period, uint64_t jitter) { return (weir_arrivals){2, period, jitter}; }
weir_arrivals weir_token_bucket(uint64_t burst, uint64_t period) { return (weir_arrivals){3, burst, period}; }

/* A minimal NVTX tool: writes every domain range it is told about to a file.
 *
 * NVTX loads the library named by NVTX_INJECTION64_PATH at a process's first NVTX call
 * and hands it the table of functions to fill in. The declarations below are the binary
 * interface of NVTX 3 (nvtxTypes.h and nvToolsExt.h of github.com/NVIDIA/NVTX), written
 * down as far as they are needed, so that no header has to be installed.
 *
 * NVTX_RANGES_FILE names the file. One line per event, fields separated by tabs:
 *   pid  thread  push   domain  0   message
 *   pid  thread  pop    domain  0
 *   pid  thread  start  domain  id  message
 *   pid  thread  end    domain  id
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wchar.h>

enum { TABLE_CALLBACKS = 1, MODULE_CORE2 = 5 };
enum {
    RANGE_START = 2,
    RANGE_END = 3,
    RANGE_PUSH = 4,
    RANGE_POP = 5,
    REGISTER_STRING = 10,
    DOMAIN_CREATE = 12
};
enum { MESSAGE_ASCII = 1, MESSAGE_UNICODE = 2, MESSAGE_REGISTERED = 3 };

typedef void (*function)(void);

typedef struct {
    size_t struct_size;
    int (*get_module)(int module, function ***table, unsigned int *size);
} callbacks_table;

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const wchar_t *unicode;
        const char *registered; /* what register_string below handed out */
    } message;
} event_attributes;

/* Opened for appending and written with one call per line: several processes, and
 * several copies of NVTX in one process, share the file. */
static int file = -1;

static uint64_t last_id = 0;

static void write_line(const char *kind, const char *domain, uint64_t id, const char *message) {
    char line[1024];
    int length = snprintf(line, sizeof line, "%d\t%ld\t%s\t%s\t%llu\t%s\n", (int)getpid(),
                          (long)syscall(SYS_gettid), kind, domain ? domain : "",
                          (unsigned long long)id, message);
    if (file < 0 || length < 0) return;
    if (length >= (int)sizeof line) {
        length = sizeof line;
        line[length - 1] = '\n';
    }
    if (write(file, line, (size_t)length) != length) abort();
}

/* A domain's handle and a registered string's handle are copies of their names. */
static const char *domain_create(const char *name) { return strdup(name); }

static const char *register_string(const char *domain, const char *string) {
    (void)domain;
    return strdup(string);
}

/* Wide messages are narrowed into `narrow`. */
static const char *text(const event_attributes *attributes, char *narrow, size_t size) {
    const char *message = "";
    if (attributes->message_type == MESSAGE_ASCII)
        message = attributes->message.ascii;
    else if (attributes->message_type == MESSAGE_REGISTERED)
        message = attributes->message.registered;
    else if (attributes->message_type == MESSAGE_UNICODE) {
        snprintf(narrow, size, "%ls", attributes->message.unicode);
        message = narrow;
    }
    return message ? message : "";
}

static int range_push(const char *domain, const event_attributes *attributes) {
    char narrow[512];
    write_line("push", domain, 0, text(attributes, narrow, sizeof narrow));
    return 0;
}

static int range_pop(const char *domain) {
    write_line("pop", domain, 0, "");
    return 0;
}

static uint64_t range_start(const char *domain, const event_attributes *attributes) {
    char narrow[512];
    uint64_t id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    write_line("start", domain, id, text(attributes, narrow, sizeof narrow));
    return id;
}

static void range_end(const char *domain, uint64_t id) { write_line("end", domain, id, ""); }

int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t)) {
    const callbacks_table *callbacks = get_table(TABLE_CALLBACKS);
    function **table = NULL;
    unsigned int size = 0;
    const char *path = getenv("NVTX_RANGES_FILE");

    if (!path || !callbacks || !callbacks->get_module(MODULE_CORE2, &table, &size)) return 0;
    if (size <= DOMAIN_CREATE) return 0;
    if (file < 0) file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return 0;

    *table[RANGE_START] = (function)range_start;
    *table[RANGE_END] = (function)range_end;
    *table[RANGE_PUSH] = (function)range_push;
    *table[RANGE_POP] = (function)range_pop;
    *table[REGISTER_STRING] = (function)register_string;
    *table[DOMAIN_CREATE] = (function)domain_create;
    return 1;
}

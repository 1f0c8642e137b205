/* Runs in the guest: takes one command after another from a port, in the namespace it was started in.
 *
 *   attend PORT
 *
 * A command comes as "NUMBER LENGTH\n" and that many bytes of bash, and is answered by "NUMBER STATUS LENGTH\n" and
 * all that it printed. "0 0 0" tells that the port is open. A program and not a script: under User Mode Linux each
 * system call costs a change of process, and a shell reads a line byte by byte. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define LONGEST_HEAD 64

extern char **environ;
static int port;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void take(char *to, size_t length) {
    while (length > 0) {
        ssize_t got = read(port, to, length);
        if (got <= 0)
            fail("attend: read");
        to += got, length -= got;
    }
}

static void give(const char *from, size_t length) {
    while (length > 0) {
        ssize_t gone = write(port, from, length);
        if (gone <= 0)
            fail("attend: write");
        from += gone, length -= gone;
    }
}

/* The head of a command; it is short, so that a byte at a time does no harm. */
static void take_head(unsigned *number, size_t *length) {
    char head[LONGEST_HEAD] = {0};
    for (size_t at = 0; at < sizeof head - 1; at++) {
        take(head + at, 1);
        if (head[at] == '\n')
            break;
    }
    if (sscanf(head, "%u %zu", number, length) != 2)
        fail("attend: no command");
}

/* A script may be longer than one word of a command (128 KiB): the shell reads it from a file in memory, its descriptor 3. */
static int run(int script, int output) {
    char *words[] = {"bash", "/proc/self/fd/3", NULL};
    posix_spawn_file_actions_t files;
    int status;
    pid_t child;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_adddup2(&files, output, 2);
    posix_spawn_file_actions_adddup2(&files, script, 3);
    if (posix_spawn(&child, "/usr/bin/bash", &files, NULL, words, environ) != 0)
        return 127;
    posix_spawn_file_actions_destroy(&files);
    if (waitpid(child, &status, 0) != child)
        fail("attend: wait");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A serial line would cut lines, echo them and change their ends. */
static void make_raw(void) {
    struct termios line;
    if (tcgetattr(port, &line) == 0) {
        cfmakeraw(&line);
        tcsetattr(port, TCSANOW, &line);
    }
}

int main(int count, char **words) {
    char head[LONGEST_HEAD];
    if (count != 2 || (port = open(words[1], O_RDWR | O_CLOEXEC | O_NOCTTY)) < 0)
        fail("attend: port");
    make_raw();
    give("0 0 0\n", 6);
    for (;;) {
        unsigned number;
        size_t length;
        take_head(&number, &length);
        char *bytes = malloc(length + 1);
        int script = memfd_create("script", MFD_CLOEXEC), output = memfd_create("output", MFD_CLOEXEC);
        if (!bytes || script < 0 || output < 0)
            fail("attend: memory");
        take(bytes, length);
        if (write(script, bytes, length) != (ssize_t)length)
            fail("attend: memory");
        int status = run(script, output);
        off_t size = lseek(output, 0, SEEK_END);
        char *text = size > 0 ? mmap(NULL, size, PROT_READ, MAP_SHARED, output, 0) : NULL;
        give(head, snprintf(head, sizeof head, "%u %d %lld\n", number, status, (long long)size));
        give(text, size);
        if (text)
            munmap(text, size);
        close(output);
        close(script);
        free(bytes);
    }
}

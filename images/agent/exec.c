// SPDX-License-Identifier: GPL-2.0-or-later
/* A program of the user's beside the observer: its files come through the mailbox, its output leaves as messages. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "agent.h"

#define PATH_BYTES 24
#define MAX_ARGUMENT_BYTES 131072
#define MAX_ARGUMENTS 4096
#define TERMINAL "/dev/ttyS1"
#define CANNOT_EXECUTE 126

static char *const environment[] = { "PATH=/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/", NULL };

static int write_all(int file, const char *data, size_t bytes)
{
	while (bytes) {
		ssize_t written = write(file, data, bytes);

		if (written < 0)
			return -errno;
		data += written;
		bytes -= written;
	}
	return 0;
}

int exec_store(const struct tb_step *step)
{
	char path[PATH_BYTES + 1] = "", directory[PATH_BYTES + 1] = "";
	const char *slash;
	int file, error;

	memcpy(path, &step->a, PATH_BYTES);
	slash = strrchr(path, '/');
	if (!slash || step->count > channel_payload_bytes())
		return -EINVAL;
	memcpy(directory, path, slash - path);
	mkdir(directory, 0755);
	file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (step->queue ? O_APPEND : O_TRUNC), 0755);
	if (file < 0)
		return -errno;
	error = write_all(file, channel_payload(), step->count);
	close(file);
	return error ? error : (int)step->count;
}

/* Strings in a row: the program's path, that of its stdin, and its arguments from the zeroth on. */
static int read_arguments(char *strings[MAX_ARGUMENTS])
{
	static char text[MAX_ARGUMENT_BYTES];
	int file = open(TB_ARGUMENTS_PATH, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof(text));
	int count = 0;

	if (bytes < 0)
		return -errno;
	close(file);
	if (!bytes || bytes == sizeof(text) || text[bytes - 1])
		return -E2BIG;
	for (char *string = text; string < text + bytes && count < MAX_ARGUMENTS - 1; string += strlen(string) + 1)
		strings[count++] = string;
	strings[count] = NULL;
	return count < 3 ? -EINVAL : 0;
}

static _Noreturn void become(char *const strings[], const int outputs[2], bool terminal)
{
	int input = open(strings[1], terminal ? O_RDWR : O_RDONLY);

	iopl(0);
	setsid();
	if (terminal)
		ioctl(input, TIOCSCTTY, 0);
	if (input < 0 || dup2(input, 0) < 0 || dup2(terminal ? 0 : outputs[0], 1) < 0 ||
	    dup2(terminal ? 0 : outputs[1], 2) < 0)
		_exit(CANNOT_EXECUTE);
	if (input > 2)
		close(input);
	execve(strings[0], strings + 2, environment);
	dprintf(2, "testbed: the guest cannot execute %s: %s\n", strings[2], strerror(errno));
	_exit(CANNOT_EXECUTE);
}

/* Send what can be read now; return whether there can be more at once. */
static bool forward(struct pollfd *output, enum tb_message type)
{
	char data[TB_PAGE_BYTES];
	ssize_t bytes = output->fd < 0 ? 0 : read(output->fd, data, sizeof(data));

	if (bytes > 0)
		channel_send(type, data, bytes, 1);
	else if (!bytes)
		output->fd = -1; /* poll() passes it over */
	return bytes > 0;
}

/* Forward all output until the program has ended; who else still has the pipes open is not waited for. */
static void forward_until_end(pid_t pid, const int outputs[2])
{
	struct pollfd files[] = {
		{ .fd = outputs[0], .events = POLLIN },
		{ .fd = outputs[1], .events = POLLIN },
		{ .fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN },
	};
	bool more = true;

	while (more || !(files[2].revents & POLLIN)) {
		if (poll(files, 3, more ? 0 : -1) < 0 && errno != EINTR)
			channel_fail("cannot wait for the program: %s", strerror(errno));
		more = forward(&files[0], TB_STDOUT);
		more |= forward(&files[1], TB_STDERR);
	}
	close(files[2].fd);
}

static void send_exit(pid_t pid)
{
	struct tb_exited exited = { 0 };

	waitpid(pid, &exited.status, 0);
	channel_send(TB_EXITED, &exited, 1, sizeof(exited));
}

int exec_run(bool terminal)
{
	char *strings[MAX_ARGUMENTS];
	int out[2], err[2], error = read_arguments(strings);
	pid_t pid;

	if (error)
		return error;
	mkdir("/tmp", 01777);
	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		become(strings, (const int[]){ out[1], err[1] }, terminal);
	close(out[1]);
	close(err[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	forward_until_end(pid, (const int[]){ out[0], err[0] });
	close(out[0]);
	close(err[0]);
	send_exit(pid);
	return 0;
}

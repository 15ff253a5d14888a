/* A letter is a head, then texts that each end with a zero byte: the folder, the number of
 * variables, the variables, the number of words, the words, the number of bytes of rank 0's input;
 * then these bytes. */
#include "agent.h"

#include "hosts.h"
#include "meeting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "tuttirun 2 "

static const char *letter_next_text(char **at, const char *end)
{
	char *text = *at, *zero = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;

	if (!zero)
		return NULL;
	*at = zero + 1;
	return text;
}

/* A number, and so many texts. */
static char **letter_next_list(char **at, const char *end, int *count)
{
	const char *text = letter_next_text(at, end);
	char **list, *rest;
	long n = text ? strtol(text, &rest, 10) : -1;

	if (n < 0 || rest == text || *rest || n > end - *at)
		return NULL;
	list = calloc((size_t)n + 1, sizeof *list);
	for (long i = 0; list && i < n; i++) {
		list[i] = (char *)letter_next_text(at, end);
		if (!list[i]) {
			free(list);
			return NULL;
		}
	}
	*count = (int)n;
	return list;
}

static void letter_read_input(struct letter *letter, char **at, const char *end)
{
	const char *text = letter_next_text(at, end);
	char *rest;
	long n = text ? strtol(text, &rest, 10) : -1;

	if (n < 0 || rest == text || *rest || n > end - *at)
		return;
	letter->input = *at;
	letter->input_bytes = (size_t)n;
	*at += n;
}

int letter_read(struct letter *letter, char *bytes, size_t count)
{
	const char *end = bytes + count;
	char *at = bytes;

	*letter = (struct letter){.folder = letter_next_text(&at, end)};
	if (!letter->folder)
		return 0;
	letter->variables = letter_next_list(&at, end, &letter->variable_count);
	for (int i = 0; i < letter->variable_count; i++)
		if (!strchr(letter->variables[i], '='))
			return 0;
	if (letter->variables)
		letter->words = letter_next_list(&at, end, &letter->word_count);
	if (letter->words)
		letter_read_input(letter, &at, end);
	return letter->words && letter->word_count > 0 && letter->input && at == end;
}

void letter_free(struct letter *letter)
{
	free(letter->variables);
	free(letter->words);
}

long letter_bytes(const char head[AGENT_HEAD_BYTES])
{
	size_t name = strlen(HEAD);
	char digits[AGENT_HEAD_BYTES], *end;
	long n;

	if (memcmp(head, HEAD, name) != 0 || head[AGENT_HEAD_BYTES - 1] != '\n')
		return -1;
	memcpy(digits, head + name, AGENT_HEAD_BYTES - name - 1);
	digits[AGENT_HEAD_BYTES - name - 1] = '\0';
	n = strtol(digits, &end, 16);
	return *end || n < 0 || n > AGENT_BYTES_MAX ? -1 : n;
}

/* Variables that ranks may need elsewhere. Names of hosts, terminals and sessions are each
 * machine's own. */
static bool is_sent(const char *variable)
{
	static const char *const begins[] = {"TUTTI_", "OMP_",  "MKL_", "OPENBLAS_",
					     "CUDA_",  "NCCL_", "UCX_", "PYTHON"};
	static const char *const names[] = {"PATH=", "LD_LIBRARY_PATH="};
	static const char *const kept[] = {"TUTTI_HOST_ID=", "TUTTI_RESTARTED="};

	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
			return false;
	for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
		if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
			return true;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strncmp(variable, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

static void letter_put(FILE *to, const char *text)
{
	fwrite(text, 1, strlen(text) + 1, to);
}

static void letter_put_number(FILE *to, long number)
{
	char text[24];

	snprintf(text, sizeof text, "%ld", number);
	letter_put(to, text);
}

static void letter_put_variables(FILE *to, const struct hosts *hosts, const struct meeting *meeting)
{
	int count = 2 + (meeting->secret[0] != '\0');

	for (char **v = environ; *v; v++)
		count += is_sent(*v);
	letter_put_number(to, count);
	for (char **v = environ; *v; v++)
		if (is_sent(*v))
			letter_put(to, *v);
	letter_put(to, meeting->is_chosen ? MEETING_CHOSEN "=1" : MEETING_CHOSEN "=0");
	letter_put(to, hosts->are_again ? AGENT_AGAIN "=1" : AGENT_AGAIN "=0");
	if (meeting->secret[0]) {
		fputs("TUTTI_SECRET=", to);
		letter_put(to, meeting->secret);
	}
}

static void letter_put_seconds(FILE *to, double seconds)
{
	char text[40];

	snprintf(text, sizeof text, "%.3f", seconds);
	letter_put(to, text);
}

/* The options as they were given, then those of this machine, which count as they come last. Where
 * a failure starts all machines again, this one alone starts nothing again. */
static void letter_put_words(FILE *to, const struct hosts *hosts, const struct meeting *meeting,
			     int host)
{
	const struct options *o = hosts->options;
	int program_words = 0, time_words = hosts->left_s > 0 ? 2 : 0;

	while (o->program[program_words])
		program_words++;
	letter_put_number(to, 2 + o->given_words + 13 + time_words + program_words);
	letter_put(to, "tuttirun");
	letter_put(to, "--agent");
	for (int i = 0; i < o->given_words; i++)
		letter_put(to, o->given[i]);
	letter_put(to, "--ranks");
	letter_put_number(to, o->ranks);
	letter_put(to, "--nnodes");
	letter_put_number(to, o->nodes);
	letter_put(to, "--node-rank");
	letter_put_number(to, host);
	letter_put(to, "--master-addr");
	letter_put(to, meeting->host);
	letter_put(to, "--port");
	letter_put_number(to, meeting->port);
	letter_put(to, "--max-restarts");
	letter_put_number(to, options_restart_hosts(o) ? 0 : o->max_restarts);
	if (time_words) {
		letter_put(to, "--timeout");
		letter_put_seconds(to, hosts->left_s);
	}
	letter_put(to, "--");
	for (int i = 0; i < program_words; i++)
		letter_put(to, o->program[i]);
}

/* Of the first machine: rank 0 is there. */
static void letter_put_input(FILE *to, const struct hosts *hosts, int host)
{
	size_t bytes = host == 0 ? hosts->input.bytes : 0;

	letter_put_number(to, (long)bytes);
	if (bytes > 0)
		fwrite(hosts->input.data, 1, bytes, to);
}

/* The letter as bytes, the caller's to free; NULL with errno. */
static char *letter_write_letter(const struct hosts *hosts, const struct meeting *meeting, int host,
				 size_t *count)
{
	char head[AGENT_HEAD_BYTES + 1], *bytes = NULL, *folder = getcwd(NULL, 0);
	FILE *to = folder ? open_memstream(&bytes, count) : NULL;

	if (to) {
		fprintf(to, HEAD "%08x\n", 0);
		letter_put(to, folder);
		letter_put_variables(to, hosts, meeting);
		letter_put_words(to, hosts, meeting, host);
		letter_put_input(to, hosts, host);
	}
	free(folder);
	if (!to || fclose(to) != 0) {
		free(bytes);
		return NULL;
	}
	snprintf(head, sizeof head, HEAD "%08zx\n", *count - AGENT_HEAD_BYTES);
	memcpy(bytes, head, AGENT_HEAD_BYTES);
	return bytes;
}

/* All at once: no agent reads yet. Only a long letter takes a larger pipe, since the pipes of a
 * user have 64 MiB in all. */
static bool letter_fill_pipe(int fd, const char *bytes, size_t count)
{
	if (count > AGENT_BYTES_MAX) {
		errno = E2BIG;
		return false;
	}
	if (fcntl(fd, F_GETPIPE_SZ) < (int)count && fcntl(fd, F_SETPIPE_SZ, (int)count) < 0)
		return false;
	return write(fd, bytes, count) == (ssize_t)count;
}

static void letter_say_unsent(const char *host, size_t count)
{
	int error = errno;

	fprintf(stderr, "tuttirun: host %s cannot be told what to run, and where: %s", host,
		strerror(error));
	if (count == 0 && error == ENOENT)
		fputs(": the folder that tuttirun is in has been removed", stderr);
	if (count > 0)
		fprintf(stderr, ": arguments and environment have %zu bytes of at most %d%s", count,
			AGENT_BYTES_MAX,
			error == EPERM ? "; raise /proc/sys/fs/pipe-user-pages-soft" : "");
	fputs(".\n", stderr);
}

int letter_send(int fd, const struct hosts *hosts, const struct meeting *meeting, int host)
{
	size_t count = 0;
	char *bytes = letter_write_letter(hosts, meeting, host, &count);
	bool is_sent = bytes && letter_fill_pipe(fd, bytes, count);

	if (!is_sent)
		letter_say_unsent(hosts->name[host], count);
	free(bytes);
	return is_sent ? 0 : -1;
}

/* Reads lists of machines. This machine itself needs no ssh, unless a command for it was given. */
#include "hosts.h"

#include "quote.h"

#include "core/words/netaddr.h"
#include "core/words/number.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES sizeof((struct options *)0)->master_text

/* It asks for no password, which nobody would see, and notices within a minute that a machine does
 * not answer, or is gone. */
static const char *hosts_ssh_of(const struct hosts *h)
{
	return h->options->ssh ? h->options->ssh
			       : "ssh -o BatchMode=yes -o ConnectTimeout=60 "
				 "-o ServerAliveInterval=15";
}

static int hosts_no_memory(void)
{
	fputs("tuttirun: no memory for the list of hosts.\n", stderr);
	return 1;
}

/* ssh takes a word that begins with - for an option. */
static bool hosts_is_name(const char *name, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (!isgraph((unsigned char)name[i]))
			return false;
	return bytes > 0 && bytes < NAME_BYTES && name[0] != '-';
}

/* The part of "user@host" after the @. */
static const char *hosts_host_of(const char *name)
{
	const char *at = strrchr(name, '@');

	return at ? at + 1 : name;
}

/* Removes the brackets of an IPv6 address, which ssh does not understand. With --ssh names need not
 * be valid here: its command may accept others, such as "a:22". Returns 0, or the exit code. */
static int hosts_read_name(const struct hosts *h, char name[NAME_BYTES])
{
	char *begin = name + (hosts_host_of(name) - name), host[NAME_BYTES];
	const char *why = netaddr_read_host(begin, host, sizeof host);
	int ranks;

	if (!why)
		strcpy(begin, host);
	if (!why || h->options->ssh)
		return 0;
	/* "a:2" for two ranks on a, as mpirun and mpiexec have it */
	if (!netaddr_read(begin, host, sizeof host, &ranks))
		return line_wrong("'%s' is not the name of a host: -n says how many ranks run "
				  "on each host.",
				  name);
	return line_wrong("'%s' is not the name of a host: it %s.", name, why);
}

static int hosts_add(struct hosts *h, const char *text, size_t bytes)
{
	char **longer, name[NAME_BYTES];
	int code;

	if (!hosts_is_name(text, bytes))
		return line_wrong("'%.*s' is not the name of a host.", (int)bytes, text);
	memcpy(name, text, bytes);
	name[bytes] = '\0';
	code = hosts_read_name(h, name);
	if (code != 0)
		return code;
	if (h->n == HOSTS_MAX)
		return line_wrong("there are more than %d hosts.", HOSTS_MAX);
	longer = realloc(h->name, (size_t)(h->n + 1) * sizeof *longer);
	if (!longer)
		return hosts_no_memory();
	h->name = longer;
	h->name[h->n] = strdup(name);
	return h->name[h->n++] ? 0 : hosts_no_memory();
}

static int hosts_read_list(struct hosts *h, const char *list)
{
	for (;;) {
		size_t n = strcspn(list, ",");
		int code = hosts_add(h, list, n);

		if (code != 0 || !list[n])
			return code;
		list += n + 1;
	}
}

/* "name", "name slots=4"; Open MPI's and MPICH's files have further words, which mean nothing here.
 */
static int hosts_read_line(struct hosts *h, char *line, int number, struct options *o)
{
	char *save, *word = strtok_r(line, " \t\r\n", &save);
	int slots, code;

	if (!word || *word == '#')
		return 0;
	code = hosts_add(h, word, strlen(word));
	while (code == 0 && (word = strtok_r(NULL, " \t\r\n", &save)) && *word != '#') {
		if (strncmp(word, "slots=", 6) != 0)
			continue;
		if (!number_read_int(word + 6, 1, RANKS_MAX, &slots))
			return line_wrong("%s:%d: '%s' is not a number of ranks.", o->hostfile,
					  number, word);
		if (o->ranks == 0)
			o->ranks = slots;
		if (slots != o->ranks)
			return line_wrong("%s:%d: %s has %s, but -n or another host %d: all have "
					  "to have as many ranks.",
					  o->hostfile, number, h->name[h->n - 1], word, o->ranks);
	}
	return code;
}

static int hosts_read_file(struct hosts *h, struct options *o)
{
	FILE *file = fopen(o->hostfile, "re");
	size_t room = 0;
	char *line = NULL;
	int code = 0, error;

	if (!file)
		return line_wrong("the file of hosts %s cannot be read: %s.", o->hostfile,
				  strerror(errno));
	for (int number = 1; code == 0 && getline(&line, &room, file) >= 0; number++)
		code = hosts_read_line(h, line, number, o);
	error = ferror(file) ? errno : 0;
	free(line);
	fclose(file);
	if (code == 0 && error)
		return line_wrong("the file of hosts %s cannot be read: %s.", o->hostfile,
				  strerror(error));
	if (code == 0 && h->n == 0)
		return line_wrong("the file of hosts %s names none.", o->hostfile);
	return code;
}

static bool hosts_is_here(const struct hosts *h, int host)
{
	return strcmp(h->name[host], "localhost") == 0 || strcmp(h->name[host], h->own_name) == 0;
}

/* The name by which the others reach the first machine. text: room for it. */
static const char *hosts_first_name(const struct hosts *h, char text[NAME_BYTES])
{
	int port;

	if (strcmp(h->name[0], "localhost") != 0) {
		const char *name = hosts_host_of(h->name[0]);
		return netaddr_read(name, text, NAME_BYTES, &port) ? name : text;
	}
	for (int i = 0; i < h->n; i++)
		if (!hosts_is_here(h, i))
			return h->own_name;
	return netaddr_loopback();
}

/* Returns 0, or the exit code. */
static int hosts_write_command(struct hosts *h)
{
	FILE *file = fmemopen(h->command, sizeof h->command, "w");

	if (!file)
		return hosts_no_memory();
	fputs("exec ", file);
	quote_write(file, h->path);
	fputs(" --agent", file);
	if (fclose(file) == 0)
		return 0;
	fprintf(stderr, "tuttirun: its own path is too long for a shell: %s\n", h->path);
	return 1;
}

static int hosts_find_program(struct hosts *h)
{
	ssize_t n = readlink("/proc/self/exe", h->path, sizeof h->path - 1);

	if (n <= 0) {
		fprintf(stderr, "tuttirun: its own path is not known: %s.\n", strerror(errno));
		return 1;
	}
	h->path[n] = '\0';
	if (hosts_write_command(h) != 0)
		return 1;
	h->ssh = strdup(hosts_ssh_of(h));
	h->words = calloc(h->ssh ? strlen(h->ssh) + 3 : 1, sizeof *h->words);
	return h->ssh && h->words ? 0 : hosts_no_memory();
}

int hosts_find(struct hosts *h, struct options *o)
{
	int code;

	*h = (struct hosts){.options = o, .left_s = o->timeout_s};
	gethostname(h->own_name, sizeof h->own_name - 1);
	code = o->hosts ? hosts_read_list(h, o->hosts) : hosts_read_file(h, o);
	if (code != 0)
		return code;
	o->nodes = h->n;
	if (!o->master_host)
		o->master_host = hosts_first_name(h, o->master_text);
	code = options_check(o);
	return code < 0 ? hosts_find_program(h) : code;
}

char **hosts_command(struct hosts *h, int host)
{
	char *save, *word;
	int n = 0;

	if (hosts_is_here(h, host) && !h->options->ssh) {
		h->words[n++] = h->path;
		h->words[n++] = "--agent";
	} else {
		strcpy(h->ssh, hosts_ssh_of(h));
		for (word = strtok_r(h->ssh, " ", &save); word; word = strtok_r(NULL, " ", &save))
			h->words[n++] = word;
		h->words[n++] = h->name[host];
		h->words[n++] = h->command;
	}
	h->words[n] = NULL;
	return h->words;
}

void hosts_free(struct hosts *h)
{
	for (int i = 0; i < h->n; i++)
		free(h->name[i]);
	free(h->name);
	free(h->input.data);
	free(h->ssh);
	free(h->words);
}

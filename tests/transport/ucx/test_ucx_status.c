/* Would break: what went wrong in UCX is told as something else, or the loaded library takes the
 * process over: its signals, its mmap, its environment. */
#include "transport/ucx/library.h"

#include "core/status.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit.h"

static void test_statuses(void **state)
{
	static const struct {
		ucs_status_t theirs;
		tutti_status ours;
	} cases[] = {
		{UCS_OK, TUTTI_OK},
		{UCS_ERR_NO_MEMORY, TUTTI_ERR_MEMORY},
		{UCS_ERR_ENDPOINT_TIMEOUT, TUTTI_ERR_PEER},
		{UCS_ERR_CONNECTION_RESET, TUTTI_ERR_PEER},
		{UCS_ERR_UNREACHABLE, TUTTI_ERR_PEER},
		{UCS_ERR_NOT_CONNECTED, TUTTI_ERR_PEER},
		{UCS_ERR_SHMEM_SEGMENT, TUTTI_ERR_PEER},
		{UCS_ERR_FIRST_ENDPOINT_FAILURE, TUTTI_ERR_PEER},
		{UCS_ERR_FIRST_LINK_FAILURE, TUTTI_ERR_DEVICE},
		{UCS_ERR_LAST_LINK_FAILURE, TUTTI_ERR_DEVICE},
		{UCS_ERR_IO_ERROR, TUTTI_ERR_DEVICE},
		{UCS_ERR_NO_DEVICE, TUTTI_ERR_DEVICE},
		{UCS_ERR_UNSUPPORTED, TUTTI_ERR_UNSUPPORTED},
		{UCS_ERR_INVALID_PARAM, TUTTI_ERR_INTERNAL},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(ucx_status(cases[i].theirs), cases[i].ours);
}

/* The first instructions of mmap, which UCX's memory hooks replace, and who handles signals. */
static void look(uint8_t code[16], struct sigaction handlers[4])
{
	static const int signals[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	void *at = dlsym(RTLD_DEFAULT, "mmap");

	memcpy(code, at, 16);
	for (int i = 0; i < 4; i++)
		assert_int_equal(sigaction(signals[i], NULL, &handlers[i]), 0);
}

static void test_loading_changes_nothing(void **state)
{
	struct sigaction handlers[2][4];
	const struct ucx_library *library;
	char **before = environ;
	uint8_t code[2][16];

	look(code[0], handlers[0]);
	if (ucx_library(&library) != TUTTI_OK)
		skip_because(last_error());
	look(code[1], handlers[1]);
	assert_memory_equal(code[0], code[1], sizeof code[0]);
	for (int i = 0; i < 4; i++)
		assert_ptr_equal(handlers[0][i].sa_handler, handlers[1][i].sa_handler);
	assert_ptr_equal(environ, before);
	assert_null(getenv("UCX_MEM_EVENTS"));
	assert_string_equal(library->ucs_status_string(UCS_OK), "Success");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_loading_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

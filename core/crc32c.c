/* One byte at a time by a table; eight at a time where the CPU has SSE4.2. Each call asks for that
 * anew: a load costs little beside a message. */
#include "core/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* with its lowest power first */

/* The remainder of each byte divided by it. */
static uint32_t left_over[256];
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static void crc32c_fill(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t left = byte;
		for (int bit = 0; bit < 8; bit++)
			left = left >> 1 ^ (left & 1 ? POLYNOMIAL : 0);
		left_over[byte] = left;
	}
}

uint32_t crc32c_by_table(uint32_t sum, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	pthread_once(&filled, crc32c_fill);
	sum = ~sum;
	for (size_t i = 0; i < bytes; i++)
		sum = sum >> 8 ^ left_over[(sum ^ at[i]) & 0xff];
	return ~sum;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t sum, const uint8_t *at,
								 size_t bytes)
{
	uint64_t wide = (uint32_t)~sum, word;

	for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
		memcpy(&word, at, sizeof word);
		wide = _mm_crc32_u64(wide, word);
	}
	sum = (uint32_t)wide;
	for (; bytes > 0; bytes--)
		sum = _mm_crc32_u8(sum, *at++);
	return ~sum;
}
#endif

uint32_t crc32c(uint32_t sum, const void *data, size_t bytes)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return by_instruction(sum, data, bytes);
#endif
	return crc32c_by_table(sum, data, bytes);
}

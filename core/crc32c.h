/* CRC-32C (Castagnoli's polynomial): finds every burst of errors up to 32 bits long, and others but
 * for one in four billion. Against accidents; an attacker who changes bytes can change the sum as
 * well. */
#ifndef CORE_CRC32C_H
#define CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The sum of what sum was of and these bytes behind it; 0 is that of nothing. */
uint32_t crc32c(uint32_t sum, const void *data, size_t bytes);
/* The same without the CPU's instruction: what it is tested against, and used where there is none.
 */
uint32_t crc32c_by_table(uint32_t sum, const void *data, size_t bytes);

#endif

#include "server/store/memory_store.h"

#include "tests/server/store/store_conformance.h"

namespace metp {
namespace {

INSTANTIATE_TEST_SUITE_P(MemoryStore, StoreConformance,
                         ::testing::Values([] { return std::make_unique<MemoryStore>(); }));

}  // namespace
}  // namespace metp

/** What the library's services use of `@nestjs/core`: as `nest-common.ts`. */
export { ApplicationConfig } from '@nestjs/core/application-config.js';
export { ModulesContainer } from '@nestjs/core/injector/modules-container.js';
